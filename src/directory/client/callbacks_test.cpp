// Functions of the user that throw, or that end their ULT.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

struct of_no_standard {};

const std::vector<std::function<void()>> all_throws{
    [] { throw std::runtime_error("broken"); }, [] { throw error(errc::denied, "not here"); },
    [] { throw 7; }, [] { throw of_no_standard(); }, [] { this_task::exit(); }};

class callbacks : public testing::Test {
protected:
    context_options at(context_options options = {}) {
        options.directory = host.address();
        return options;
    }

    engine host{"shm://", {.name = "directory"}};
    directory_server directory{host};
    context other{at()};
};

TEST_F(callbacks, whatever_a_watch_throws_it_goes_on) {
    for (const auto& throws : all_throws) {
        channel<resource_change> told(10);
        context here{at()};
        resource_watch watch = here.watch({{"type", "x"}}, [&](const resource_change& change) {
            told.try_push(resource_change(change));
            throws();
        });
        for (int i = 0; i < 2; ++i) {
            resource brief = other.add({{"type", "x"}});
            EXPECT_EQ(told.pop()->what, resource_change::kind::appeared);
            brief = {};
            EXPECT_EQ(told.pop()->what, resource_change::kind::gone);
        }
        watch.end();
    }
}

TEST_F(callbacks, a_watch_needs_a_function) {
    try {
        resource_watch none = other.watch({}, {});
        FAIL() << "it was taken";
    } catch (const error& why) {
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_STREQ(why.what(), "watch() was given an empty function");
    }
}

TEST_F(callbacks, whatever_on_undelivered_throws_each_post_is_told) {
    constexpr int posts = 10;
    for (const auto& throws : all_throws) {
        channel<int> told(4 * posts);
        context here{at({.on_undelivered = [&](const undelivered_message& which) {
            told.try_push(int{which.tag});
            throws();
        }})};
        resource box = other.add({});
        const resource_id gone = box.id();
        here.self().send(gone, 0, "it is known now");
        box = {};
        here.self().post(gone, 1, "refused by its context");
        EXPECT_EQ(told.pop(), 1);
        std::vector<future<void>> begun;
        int refused = 0;
        for (int i = 0; i < posts; ++i) {
            begun.push_back(here.self().start_send(gone, 2, here.take_buffer(100000)));
            try {
                here.self().post(gone, 3, "behind it, or refused at once");
            } catch (const error&) {
                ++refused;
            }
        }
        begun.push_back(here.self().start_send(gone, 2, here.take_buffer(100)));
        for (auto& each : begun)
            EXPECT_EQ(each.wait().code, errc::not_found);
        for (int i = refused; i < posts; ++i)
            EXPECT_EQ(told.pop(), 3);
        box = other.add({});
        here.self().start_send(box.id(), 4, here.take_buffer(100)).get();
    }
}

}  // namespace
}  // namespace amalgam
