// Processes that keep their connections, but do not respond.
#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/tasks/ult.hpp>

#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

const char* const three_groups = R"({"groups": {"G0": {"endpoint": "loop://a"},
                                                "G1": {"endpoint": "loop://b"},
                                                "G2": {"endpoint": "loop://c"}}})";
const char* const silent = "lost contact with group G1 (it has not answered for 5 s)";

/// One number every 20 milliseconds from G0 through G1 to G2.
void endless(graph& g, const process_id&) {
    auto from = g.add_source<int>("from", [](outlet<int>& out) {
        for (int i = 0;; ++i) {
            out.send(i);
            this_task::sleep_for(20ms);
        }
    });
    auto middle = g.add_stage<int, int>("middle", [](int n) { return n; });
    auto to = g.add_sink<int>("to", [](int) {});
    g.pipeline(from, middle, to);
    g.group("G0").add(from);
    g.group("G1").add(middle);
    g.group("G2").add(to);
}

TEST(silent_group, ends_the_others_though_its_connections_stand) {
    simulated_run all(three_groups, {}, endless);
    all.ports.silence_limit = 24h;
    all.start_all();
    all.net.run_for(200ms);
    all.net.cut("G1");
    all.net.run_for(4s);
    EXPECT_EQ(all.failure_of(0) + all.failure_of(2), "");
    all.net.run_for(3s);
    EXPECT_EQ(all.failure_of(0), silent);
    EXPECT_EQ(all.failure_of(2), silent);
    all.net.kill("G1");
    all.run_until_idle();
    EXPECT_TRUE(all.over());
}

TEST(silent_group, that_speaks_again_in_time_is_not_lost) {
    simulated_run all(three_groups, {}, endless);
    all.ports.silence_limit = 24h;
    all.start_all();
    for (int i = 0; i < 4; ++i) {
        all.net.run_for(1s);
        all.net.cut("G1");
        all.net.run_for(3s);
        all.net.heal("G1");
    }
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(all.failure_of(i), "");
    all.net.kill("G1");
    all.run_until_idle();
}

TEST(silent_group, is_waited_for_however_long_when_there_is_no_limit) {
    simulated_run all(three_groups, {.silence_limit = 0ms}, endless);
    all.ports.silence_limit = 24h;
    all.start_all();
    all.net.run_for(200ms);
    all.net.cut("G1");
    all.net.run_for(12s);
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(all.failure_of(i), "");
    all.net.heal("G1");
    all.net.kill("G1");
    all.run_until_idle();
    EXPECT_TRUE(all.over());
}

TEST(silent_group, ends_one_that_has_sent_everything_and_waits_until_it_was_used_up) {
    simulated_run all(R"({"groups": {"G0": {"endpoint": "loop://a"},
                                  "G1": {"endpoint": "loop://b"}}})",
                      {}, [](graph& g, const process_id&) {
                          auto from =
                              g.add_source<int>("from", [](outlet<int>& out) { out.send(1); });
                          auto to = g.add_sink<int>("to", [](int) { this_task::sleep_for(1h); });
                          g.pipeline(from, to);
                          g.group("G0").add(from);
                          g.group("G1").add(to);
                      });
    all.ports.silence_limit = 24h;
    all.start_all();
    all.net.run_for(200ms);
    all.net.cut("G1");
    all.net.run_for(10s);
    EXPECT_EQ(all.failure_of(0), silent);
    EXPECT_TRUE(all[0].running->over().is_set());
    EXPECT_EQ(all.failure_of(1), "") << "it needs nobody any more";
    all.net.run_until_idle();
}

/// A loop over three groups. The first, which sends nothing to the last, is given a wrong address
/// for it.
std::string failure_when_the_last_is_at(const std::string& address) {
    simulated_run all(three_groups, {.join_limit = 2000ms}, [](graph& g, const process_id&) {
        auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(1); });
        const auto add_one = [](int n) { return n + 1; };
        auto a = g.add_stage<int, int>("a", add_one);
        auto b = g.add_stage<int, int>("b", add_one);
        auto c = g.add_stage<int, int>("c", add_one);
        auto loop = g.feedback(g.pipeline(a, b, c), [](const int& n) { return n < 50; });
        auto to = g.add_sink<int>("to", [](int) {});
        g.pipeline(from, loop, to);
        g.group("G0").add(from, a);
        g.group("G1").add(b);
        g.group("G2").add(c, to);
    });
    all.misinform = [&](const simulated_run::process& one, address_book& addresses) {
        if (one.where.group == 0) addresses[2][0] = address;
    };
    all.start_all();
    all.run_until_idle();
    EXPECT_TRUE(all.over());
    return all.failure_of(0);
}

TEST(loop_over_groups, that_cannot_be_asked_for_its_end_says_so) {
    for (const char* address : {"tcp://127.0.0.1:1", "loop://nobody"}) {
        const std::string failure = failure_when_the_last_is_at(address);
        EXPECT_EQ(failure.rfind(std::string("cannot ask the process at ") + address +
                                    " whether its part of a loop has ended (",
                                0),
                  0u)
            << failure;
    }
}

}  // namespace
}  // namespace amalgam::detail
