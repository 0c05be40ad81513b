// Random graphs over groups, on a network where a process may be killed, cut off or silenced
// towards another at any moment: the run gives the same as a plain loop, or fails everywhere, in
// time.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "flow/graph/random_graph.hpp"
#include "flow/run/simulated_run.hpp"
#include "seeded_runs.hpp"

namespace amalgam::detail {
namespace {

using namespace std::chrono_literals;

/// Longer than every timeout of a run.
constexpr auto long_enough = 2min;

void run_until_over(simulated_run& all) {
    const auto limit = all.net.now() + long_enough;
    while (all.net.now() < limit && !all.over()) {
        std::vector<simulated_run::process*> ended;
        for (auto& one : all.processes)
            if (one->running->over().is_set()) ended.push_back(one.get());
        all.net.run_for(all.net.now() + 1s < limit ? 1ms : 100ms);
        for (simulated_run::process* one : ended)
            one->over->stop();
    }
}

/// Injects a failure.
std::string fail_somehow(simulated_run& all, seeded_random& random) {
    const std::string& one = all.processes[random.below(all.processes.size())]->label;
    const std::string& other = all.processes[random.below(all.processes.size())]->label;
    switch (random.below(4)) {
        case 0:
            return "nothing";
        case 1:
            all.net.kill(one);
            return one + " is killed";
        case 2:
            all.net.cut(one);
            return one + " is cut off";
        default:
            if (one == other) return "nothing";
            all.net.cut(one, other);
            return one + " is not heard by " + other;
    }
}

void run(std::uint64_t seed) {
    const auto plan = random_graph::draw(seed, 6);
    if (random_graph::groups_of(plan).size() < 2) return;
    random_graph::outcome outcome;
    seeded_random random(~seed);
    const run_options options{.batch_bytes = 64 + random.below(1000),
                              .window_bytes = 64 + random.below(4000)};
    const auto text =
        random_graph::config_text(plan, [](const auto& group) { return "loop://" + group; });
    simulated_run all(text, options,
                      [&](graph& g, const process_id&) { random_graph::build(g, plan, outcome); },
                      {.seed = seed, .link_bytes = std::size_t{1} << (10 + random.below(10))});
    all.net.delay(0us, std::chrono::microseconds(random.below(200)));
    all.net.reorder(random.chance(0.5));
    all.start_all();
    all.net.run_for(std::chrono::microseconds(random.below(random.chance(0.8) ? 500 : 20'000)));
    const std::string what = fail_somehow(all, random);
    run_until_over(all);

    ASSERT_TRUE(all.over()) << what << ", and somebody waits for ever";
    bool failed = false;
    for (std::size_t i = 0; i < all.processes.size(); ++i)
        failed = failed || !all.failure_of(i).empty();
    EXPECT_FALSE(failed && what == "nothing");
    const auto got = random_graph::all_of(outcome), expected = random_graph::expected(plan);
    EXPECT_TRUE(std::includes(expected.begin(), expected.end(), got.begin(), got.end()))
        << what << ", and a sink got what nobody sent, or something twice";
    if (!failed) {
        EXPECT_EQ(got, expected) << what << ", and nobody says that items are missing";
    }
    EXPECT_EQ(outcome.overtaken, "");
}

TEST(flow_model, a_run_gives_what_a_plain_loop_gives_or_fails_in_time_whatever_is_lost) {
    for (const std::uint64_t seed : seeded_runs(60)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run(seed);
    }
}

}  // namespace
}  // namespace amalgam::detail
