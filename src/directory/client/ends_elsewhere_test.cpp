// What ends on another engine's stream, where it cannot wait for its own.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/without_waiting.hpp"

namespace amalgam {
namespace {

class directory_ends_elsewhere : public testing::TestWithParam<cannot_wait> {
protected:
    void elsewhere(const std::function<void()>& work) { others.run(GetParam(), work); }
    context_options at(context_options options = {}) {
        options.directory = host.address();
        return options;
    }
    void await_contexts(std::size_t n) {
        while (directory->contexts() != n)
            std::this_thread::yield();
    }

    engine host{"shm://"};
    std::unique_ptr<directory_server> directory = std::make_unique<directory_server>(host);
    other_engines others;
};

INSTANTIATE_TEST_SUITE_P(where, directory_ends_elsewhere, all_that_cannot_wait, name_of);

TEST_P(directory_ends_elsewhere, a_context_with_its_engine) {
    context stays{at()};
    for (int i = 0; i < 10; ++i) {
        auto brief = std::make_unique<context>(at());
        const resource mine = brief->add({{"type", "brief"}});
        ASSERT_TRUE(stays.find({{"type", "brief"}}));
        stays.self().send(mine.id(), 0, "unread");
        elsewhere([&] { brief.reset(); });
        await_contexts(1);
        EXPECT_FALSE(stays.find({{"type", "brief"}}));
    }
}

TEST_P(directory_ends_elsewhere, a_context_of_an_engine_that_takes_another_then) {
    engine own{"shm://"};
    for (int i = 0; i < 10; ++i) {
        context sender{at()};
        auto brief = std::make_unique<context>(own, at());
        sender.self().send(brief->id(), 0, "unread");
        elsewhere([&] { brief.reset(); });
        await_stream(own);
        await_contexts(1);
    }
    context last{own, at()};
    context sender{at()};
    sender.self().send(last.id(), 0, "read");
    EXPECT_EQ(last.self().receive().content.text(), "read");
    sender.self().post(last.id(), 0, "mail");
    EXPECT_EQ(last.self().receive().content.text(), "mail");
}

TEST_P(directory_ends_elsewhere, a_context_while_somebody_waits_for_its_messages) {
    auto brief = std::make_unique<context>(at());
    std::atomic<errc> ended{errc::ok};
    std::thread waits([&, mine = std::make_shared<resource>(brief->add({}))] {
        try {
            (void)mine->receive();
        } catch (const error& why) {
            ended = why.code().code;
        }
    });
    elsewhere([&] { brief.reset(); });
    waits.join();
    EXPECT_EQ(ended, errc::closed);
}

TEST_P(directory_ends_elsewhere, a_directory_of_an_engine_that_takes_another_then) {
    context stays{at()};
    const resource mine = stays.add({{"type", "kept"}});
    elsewhere([&] { directory.reset(); });
    await_stream(host);
    directory = std::make_unique<directory_server>(host);
    await_contexts(1);  // It registers again.
    EXPECT_TRUE(stays.find({{"type", "kept"}}));
}

TEST_P(directory_ends_elsewhere, a_watch_whose_function_runs) {
    context stays{at()};
    event goes_on;
    std::atomic<bool> runs{false}, ran{false};
    resource_watch watch = stays.watch({{"type", "x"}}, [&](const resource_change&) {
        runs = true;
        goes_on.wait();
        ran = true;
    });
    const resource mine = stays.add({{"type", "x"}});
    while (!runs)
        std::this_thread::yield();
    elsewhere([&] { watch.end(); });
    EXPECT_FALSE(ran);
    goes_on.set();
    while (!ran)
        std::this_thread::yield();
}

}  // namespace
}  // namespace amalgam
