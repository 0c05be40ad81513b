#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/ult.hpp>

#include "directory/protocol/procedures.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Two contexts at a directory that is killed and restarted, in virtual time.
class reopening : public testing::Test {
protected:
    template <typename Work>
    auto in(engine& where, Work work) {
        auto done = where.spawn(std::move(work));
        for (int i = 0; i < 1000 && !done.ready(); ++i)
            net.run_for(20ms);
        EXPECT_TRUE(done.ready());
        return done.get();
    }
    explicit reopening(std::chrono::milliseconds within = 10s) {
        net.delay(50us, 150us);
        start(net.port("host"));
        const context_options options{.directory = host->address(), .reopen_within = within};
        one = in(first, [&] { return std::make_unique<context>(first, options); });
        two = in(second, [&] { return std::make_unique<context>(second, options); });
        box = in(first, [&] { return one->add({{"type", "box"}, {"n", "1"}}); });
        net.run_for(1s);
    }
    ~reopening() override {
        in(first, [&] {
            box = {};
            one.reset();
        });
        in(second, [&] { two.reset(); });
    }
    void start(std::unique_ptr<port> at, directory_options options = {}) {
        host = std::make_unique<engine>(std::move(at));
        directory = std::make_unique<directory_server>(*host, options);
    }
    void kill_directory() {
        net.kill("host");
        net.run_for(10ms);
        directory.reset();
        host.reset();
    }
    template <typename Work>
    errc code_in(engine& where, Work work) {
        return in(where, [&] {
            try {
                work();
            } catch (const error& why) {
                return why.code().code;
            }
            return errc::ok;
        });
    }
    std::optional<found_resource> find_box() {
        attribute_list query{{"type", "box"}};
        query.ask("n");
        return two->find(query);
    }

    loop_network net{{.seed = 5}};
    engine first{net.port("first")}, second{net.port("second")};
    std::unique_ptr<engine> host;
    std::unique_ptr<directory_server> directory;
    std::unique_ptr<context> one, two;
    resource box;
};

TEST_F(reopening, a_directory_that_is_started_again_has_what_its_contexts_had) {
    const resource_id old = box.id();
    resource brief = in(first, [&] { return one->add({{"type", "brief"}}); });
    kill_directory();
    auto asked = second.spawn([&] { return find_box(); });
    auto added = first.spawn([&] { return one->add({{"type", "new"}}); });
    net.run_for(2s);
    EXPECT_FALSE(asked.ready() || added.ready());
    in(first, [&] { brief = {}; });
    start(net.restart("host"));
    net.run_for(2s);
    ASSERT_TRUE(asked.ready() && added.ready());
    auto found = asked.get();
    if (!found) found = in(second, [&] { return find_box(); });  // It may return later.
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, old);
    EXPECT_EQ(found->context, one->id());
    EXPECT_EQ(found->what.text("n"), "1");
    EXPECT_EQ(directory->contexts(), 2u);
    EXPECT_EQ(directory->resources(), 4u);
    EXPECT_FALSE(in(second, [&] { return two->find({{"type", "brief"}}); }));
    in(second, [&] { two->self().send(old, 7, "hello"); });
    EXPECT_EQ(in(first, [&] { return box.receive().content.text() == "hello"; }), true);
    in(first, [&] {
        const resource fresh = added.get();
        EXPECT_NE(fresh.id(), old);
        box = {};
    });
    EXPECT_FALSE(in(second, [&] { return find_box(); }));
    // A second time.
    box = in(first, [&] { return one->add({{"type", "box"}, {"n", "2"}}); });
    kill_directory();
    start(net.restart("host"));
    net.run_for(2s);
    const auto again = in(second, [&] { return find_box(); });
    ASSERT_TRUE(again);
    EXPECT_EQ(again->id, box.id());
}

TEST_F(reopening, attributes_that_were_changed_come_back_as_they_are_now) {
    in(first, [&] {
        box.set({{"n", "5"}});
        one->self().set({{"role", "keeper"}});
    });
    kill_directory();
    start(net.restart("host"));
    net.run_for(2s);
    const auto found = in(second, [&] { return find_box(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->what.text("n"), "5");
    const auto keeper = in(second, [&] { return two->find({{"role", "keeper"}}); });
    ASSERT_TRUE(keeper);
    EXPECT_EQ(keeper->id, one->id());
}

TEST_F(reopening, a_directory_that_ends_without_its_engine_is_lost_and_another_there_has_it_all) {
    directory.reset();
    net.run_for(1s);
    auto asked = second.spawn([&] { return find_box(); });
    net.run_for(1s);
    EXPECT_FALSE(asked.ready());
    directory = std::make_unique<directory_server>(*host);
    net.run_for(2s);
    ASSERT_TRUE(asked.ready());
    auto found = asked.get();
    if (!found) found = in(second, [&] { return find_box(); });  // It may return later.
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, box.id());
    EXPECT_EQ(directory->contexts(), 2u);
    EXPECT_EQ(directory->resources(), 3u);
}

TEST_F(reopening, a_directory_that_is_made_anew_on_its_engine_lets_its_contexts_in) {
    directory.reset();
    net.run_for(4s);
    directory = std::make_unique<directory_server>(*host);
    net.run_for(2s);
    const auto found = in(second, [&] { return find_box(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, box.id());
    EXPECT_EQ(directory->contexts(), 2u);
}

TEST_F(reopening, searches_of_a_lost_directory_end) {
    std::vector<resource> boxes;
    for (int i = 0; i < 5; ++i)
        boxes.push_back(in(first, [&] { return one->add({{"type", "box"}}); }));
    auto search = in(second, [&] { return two->search({{"type", "box"}}); });
    EXPECT_TRUE(in(second, [&] { return search.next(); }));
    kill_directory();
    start(net.restart("host"));
    net.run_for(2s);
    EXPECT_EQ(code_in(second, [&] { (void)search.next(); }), errc::disconnected);
    EXPECT_EQ(in(second,
                 [&] {
                     int seen = 0;
                     for (const found_resource& each : two->search({{"type", "box"}}))
                         seen += each.id != resource_id::none;
                     return seen;
                 }),
              6);
    in(second, [&] { search.stop(); });
    in(first, [&] { boxes.clear(); });
}

TEST_F(reopening, a_watch_outlives_its_directory_and_is_told_what_differs) {
    engine third(net.port("third"));
    auto dies = in(third, [&] {
        return std::make_unique<context>(third, context_options{.directory = host->address()});
    });
    in(third, [&] { dies->add({{"type", "box"}, {"n", "dies"}}).release(); });
    resource brief = in(first, [&] { return one->add({{"type", "box"}, {"n", "brief"}}); });
    std::vector<std::string> told;
    resource_watch watch = in(second, [&] {
        attribute_list query{{"type", "box"}};
        query.ask("n");
        return two->watch(query, [&](const resource_change& change) {
            using kind = resource_change::kind;
            told.push_back((change.what == kind::appeared ? "+"
                            : change.what == kind::gone   ? "-"
                                                          : "ended") +
                           std::string(change.which.what.text("n")));
        });
    });
    net.run_for(1s);
    const auto those = [&] {
        std::sort(told.begin(), told.end());
        return std::exchange(told, {});
    };
    EXPECT_EQ(those(), (std::vector<std::string>{"+1", "+brief", "+dies"}));
    net.kill("third");  // Together with the directory, so nobody notices.
    kill_directory();
    in(first, [&] { brief = {}; });
    auto added = first.spawn([&] { return one->add({{"type", "box"}, {"n", "new"}}); });
    net.run_for(1s);
    EXPECT_EQ(those(), std::vector<std::string>());
    start(net.restart("host"));
    net.run_for(2s);
    EXPECT_EQ(those(), std::vector<std::string>{"+new"});
    net.run_for(10s);
    EXPECT_EQ(those(), (std::vector<std::string>{"-brief", "-dies"}));
    // The watch goes on as before; then a second restart.
    in(first, [&] { (void)added.get(); });
    net.run_for(1s);
    EXPECT_EQ(those(), std::vector<std::string>{"-new"});
    kill_directory();
    start(net.restart("host"));
    net.run_for(20s);
    EXPECT_EQ(those(), std::vector<std::string>());
    in(first, [&] { box = {}; });
    net.run_for(1s);
    EXPECT_EQ(those(), std::vector<std::string>{"-1"});
    // A watch ended meanwhile is not restarted.
    kill_directory();
    in(second, [&] { watch.end(); });
    start(net.restart("host"));
    net.run_for(2s);
    box = in(first, [&] { return one->add({{"type", "box"}, {"n", "2"}}); });
    net.run_for(10s);
    EXPECT_EQ(those(), std::vector<std::string>());
    in(third, [&] { dies.reset(); });
}

/// The directory drops contexts that do not respond.
class reopening_impatiently : public reopening {
protected:
    reopening_impatiently() {
        kill_directory();
        start(net.restart("host"), {.silence = 2s});
        net.run_for(1s);
    }
};
TEST_F(reopening_impatiently, a_context_that_does_not_answer_is_gone_and_comes_back_when_it_does) {
    EXPECT_TRUE(in(second, [&] { return find_box(); }));
    net.run_for(20s);
    EXPECT_EQ(directory->contexts(), 2u) << "who has nothing to say answers";
    net.cut("first");
    net.run_for(3s);
    EXPECT_EQ(directory->contexts(), 1u);
    EXPECT_FALSE(in(second, [&] { return find_box(); }));
    net.heal("first");  // Its connection noticed nothing.
    net.run_for(2s);
    const auto found = in(second, [&] { return find_box(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, box.id());
    EXPECT_EQ(directory->contexts(), 2u);
}

TEST_F(reopening, a_context_that_was_cut_off_comes_back_to_the_same_directory) {
    net.cut("first");
    for (int i = 0; i < 100 && directory->contexts() == 2; ++i)
        net.run_for(1s);
    EXPECT_FALSE(in(second, [&] { return find_box(); }));
    net.heal("first");
    net.run_for(2s);
    const auto found = in(second, [&] { return find_box(); });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, box.id());
    EXPECT_EQ(directory->contexts(), 2u);
}

TEST_F(reopening, ids_that_another_directory_has_by_now_are_lost) {
    engine other_host(net.port("other"));
    const directory_server other(other_host, {.ring = {.others = {host->address()}}});
    net.run_for(2s);
    kill_directory();
    namespace d = detail::at_directory;
    // A context of the lost directory that found the other one first.
    engine third(net.port("third"));
    const resource_id its{static_cast<std::uint32_t>(box.id()) + 1000};
    const bool taken = in(third, [&] {
        return third.procedure<d::reopen>(d::reopen_name)
            .on(other_host.address())(its, its, attribute_list())
            .take();
    });
    EXPECT_TRUE(taken);
    start(net.restart("host"), {.ring = {.others = {other_host.address()}}});
    net.run_for(2s);
    EXPECT_EQ(code_in(second, [&] { (void)find_box(); }), errc::disconnected);
    EXPECT_EQ(directory->contexts(), 0u);
}

class reopening_briefly : public reopening {
protected:
    reopening_briefly() : reopening(3s) {}
};
TEST_F(reopening_briefly, a_directory_that_stays_away_is_lost_after_that_time) {
    kill_directory();
    auto asked = second.spawn([&] { return find_box(); });
    net.run_for(2900ms);
    EXPECT_FALSE(asked.ready());
    net.run_for(300ms);
    ASSERT_TRUE(asked.ready());
    EXPECT_EQ(asked.wait().code, errc::disconnected);
    start(net.restart("host"));
    EXPECT_EQ(code_in(second, [&] { (void)find_box(); }), errc::disconnected);
}

TEST_F(reopening_briefly, a_watch_ends_when_its_directory_stays_away) {
    std::vector<resource_change::kind> told;
    resource_watch watch = in(second, [&] {
        return two->watch({{"type", "x"}},
                          [&](const resource_change& change) { told.push_back(change.what); });
    });
    kill_directory();
    net.run_for(2900ms);
    EXPECT_TRUE(told.empty());
    net.run_for(5s);
    EXPECT_EQ(told, std::vector{resource_change::kind::ended});
    in(second, [&] { watch.end(); });
}

TEST_F(reopening_briefly, a_context_may_end_while_it_waits) {
    auto mine = in(second, [&] { return std::make_shared<resource>(two->add({})); });
    kill_directory();
    auto asked = second.spawn([mine] { mine->send(resource_id{1}, 0, "asks who that is"); });
    net.run_for(500ms);
    EXPECT_FALSE(asked.ready());
    in(second, [&] { two.reset(); });
    net.run_for(10s);
    ASSERT_TRUE(asked.ready());
    EXPECT_EQ(asked.wait().code, errc::closed);
}

TEST_F(reopening, a_directory_that_lets_in_only_others_by_now_refuses_its_contexts_at_once) {
    kill_directory();
    start(net.restart("host"), {.roles = {.readers = allow_list{.names = {"node7"}}}});
    auto asked = second.spawn([&] { return find_box(); });
    net.run_for(3s);
    ASSERT_TRUE(asked.ready()) << "it is not asked for 10 s in vain";
    EXPECT_EQ(asked.wait().code, errc::disconnected);
}

TEST(reopening_engine, that_stops_ends_what_other_threads_wait_for) {
    event lost;
    default_logger().set_level("directory", log_level::info);  // Whatever AMALGAM_LOG says.
    default_logger().set_sink([&](const log_record& line) {
        if (to_text(line).find("the directory has ended") != std::string::npos) lost.set();
    });
    engine host{"shm://"}, own{"shm://"};
    auto directory = std::make_unique<directory_server>(host);
    context here(own, {.directory = host.address(), .reopen_within = 1h});
    directory.reset();
    lost.wait();
    default_logger().set_sink({});
    execution_stream stream;
    errc why = errc::ok;
    ult asks = spawn(stream, [&] {
        try {
            (void)here.find({});
        } catch (const error& what) {
            why = what.code().code;
        }
    });
    spawn(stream, [] {}).join();  // By now it waits: a stream runs each until it does.
    own.stop();
    asks.join();
    EXPECT_EQ(why, errc::disconnected);
}

class reopening_never : public reopening {
protected:
    reopening_never() : reopening(0s) {}
};
TEST_F(reopening_never, a_directory_that_ends_without_its_engine_is_lost_at_once) {
    directory.reset();
    net.run_for(1ms);
    EXPECT_EQ(code_in(second, [&] { (void)find_box(); }), errc::disconnected);
}

TEST_F(reopening_never, a_lost_directory_is_lost_at_once) {
    kill_directory();
    auto asked = second.spawn([&] { return find_box(); });
    net.run_for(1ms);
    ASSERT_TRUE(asked.ready());
    EXPECT_EQ(asked.wait().code, errc::disconnected);
}

}  // namespace
}  // namespace amalgam
