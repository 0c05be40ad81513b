#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/log.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

TEST(directory_server, is_one_of_each_engine) {
    engine on("shm://");
    for (int times = 0; times < 2; ++times) {
        const directory_server first(on);
        const error why = error_of([&] { const directory_server second(on); });
        EXPECT_EQ(why.code(), errc::invalid);
        EXPECT_STREQ(why.what(),
                     "this engine already has a directory_server, expected at most one per engine: "
                     "use that one, or create another engine");
        // It keeps working.
        context here{"shm://", {.directory = on.address()}};
        const resource box = here.add({{"type", "box"}});
        EXPECT_EQ(first.resources(), 2u);
    }
}

TEST(directory_server, that_was_refused_leaves_its_engine_to_another) {
    engine on("shm://");
    EXPECT_EQ(error_of([&] { const directory_server none(on, {.ring = {.fanout = 0}}); }).code(),
              errc::invalid);
    const directory_server right(on);
    const context here{"shm://", {.directory = on.address()}};
    EXPECT_EQ(right.contexts(), 1u);
}

TEST(directory_server, and_contexts_are_among_the_numbers_of_their_engines) {
    engine on("shm://"), other("shm://");
    {
        const directory_server directory(on);
        context here(other, {.directory = on.address()});
        const resource box = here.add({{"type", "box"}});
        EXPECT_TRUE(here.find({{"type", "box"}}));
        const metric_snapshot all = metrics_of(on).snapshot();
        EXPECT_EQ(all.value("amalgam_directory_contexts"), 1);
        EXPECT_EQ(all.value("amalgam_directory_resources"), 2);
        EXPECT_EQ(all.value("amalgam_directory_servers"), 1);
        (void)here.lookup(box.id());
        EXPECT_NE(metrics_of(other).snapshot().find("amalgam_context_known_locations"), nullptr);
    }
    EXPECT_EQ(metrics_of(on).snapshot().find("amalgam_directory_contexts"), nullptr);
    EXPECT_EQ(metrics_of(other).snapshot().find("amalgam_context_known_locations"), nullptr);
}

TEST(directory_server, whose_engine_stops_first_ends_without_a_word_of_error) {
    std::mutex lock;
    std::string errors;
    default_logger().set_sink([&](const log_record& line) {
        const std::lock_guard one(lock);
        if (line.level == log_level::error) errors += to_text(line) + '\n';
    });
    {
        engine first("tcp://127.0.0.1:0"), second("tcp://127.0.0.1:0");
        const directory_server one(first);
        const directory_server other(second, {.ring = {.others = {first.address()}}});
        const context here{"tcp://127.0.0.1:0", {.directory = second.address()}};
        while (one.servers() < 2)
            std::this_thread::yield();
        second.stop();
        const std::lock_guard both(lock);
        EXPECT_EQ(errors, "");
    }
    default_logger().set_sink({});
}

TEST(directory_server, makes_way_if_its_function_for_that_returns) {
    struct of_no_standard {};
    engine on("shm://");
    const auto asked = [&](const std::function<void()>& on_make_way,
                           const directory_roles& roles = {}) {
        const directory_server stays(on, {.roles = roles, .on_make_way = on_make_way});
        return ask_to_make_way(on.address());
    };
    EXPECT_EQ(asked([] {}), makes_way::yes);
    EXPECT_EQ(asked({}), makes_way::no);
    EXPECT_EQ(asked([] { throw std::runtime_error("broken"); }), makes_way::no);
    EXPECT_EQ(asked([] { throw 7; }), makes_way::no);
    EXPECT_EQ(asked([] { throw of_no_standard(); }), makes_way::no);
    EXPECT_EQ(asked([] {}, {.readers = allow_list{}}), makes_way::yes) << "its user may";
    EXPECT_EQ(ask_to_make_way(on.address()), makes_way::nobody) << "it has ended";
    EXPECT_EQ(ask_to_make_way("shm://nobody-is-here"), makes_way::nobody);
    EXPECT_EQ(error_of([] { (void)ask_to_make_way("nonsense"); }).code(), errc::invalid);
}

}  // namespace
}  // namespace amalgam
