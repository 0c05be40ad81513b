// Workers in a group of several processes: between which ones the routing chooses.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

using taken = std::map<int, std::set<std::pair<std::size_t, std::size_t>>>;

/// Records which worker, in which replica, got an item.
struct noting : sink<int> {
    noting(std::size_t which, taken& into) : own(which), all(into) {}
    void start(const place& here) { replica = here.replica; }
    void consume(int n) { all[n].insert({own, replica}); }
    std::size_t own, replica = 0;
    taken& all;
};

/// Which worker got which of the numbers that `generate` sends to a farm of `workers` in a group of
/// three replicas.
template <typename Generate, typename Routing>
taken run_farm(std::size_t workers, Generate generate, Routing routing) {
    taken all;
    simulated_run processes(
        R"({"groups": {"G0": {"endpoint": "loop://G0"},
                       "G1": {"endpoint": ["loop://a", "loop://b", "loop://c"]}}})",
        {}, [&](graph& g, const process_id&) {
            auto from = g.add_source<int>("from", generate);
            std::vector<block<int, void>> sinks;
            for (std::size_t i = 0; i < workers; ++i)
                sinks.push_back(g.add<noting>("to" + std::to_string(i), i, all));
            g.pipeline(from, g.farm(sinks, routing));
            g.group("G0").add(from);
            g.group("G1").add(sinks);
        });
    processes.start_all();
    processes.run_until_idle();
    EXPECT_TRUE(processes.over());
    EXPECT_EQ(processes.failure_of(0), "");
    return all;
}

TEST(replicas, by_key_spreads_keys_over_the_replicas_of_one_node) {
    const taken all = run_farm(
        1,
        [](outlet<int>& out) {
            for (int i = 0; i < 300; ++i)
                out.send(i % 30);
        },
        by_key([](int n) { return n; }));
    ASSERT_EQ(all.size(), 30u);
    std::set<std::pair<std::size_t, std::size_t>> used;
    for (const auto& [key, takers] : all) {
        EXPECT_EQ(takers.size(), 1u) << key;
        used.insert(takers.begin(), takers.end());
    }
    EXPECT_EQ(used.size(), 3u);
}

TEST(replicas, are_as_many_workers_numbered_worker_by_worker) {
    const taken all = run_farm(
        2,
        [](outlet<int>& out) {
            EXPECT_EQ(out.workers(), 6u);
            for (int i = 0; i < 6; ++i)
                out.send_to(static_cast<std::size_t>(i), i);
        },
        round_robin);
    for (const auto& [n, takers] : all) {
        const auto which = static_cast<std::size_t>(n);
        EXPECT_EQ(takers, (std::set<std::pair<std::size_t, std::size_t>>{{which / 3, which % 3}}));
    }
    EXPECT_EQ(all.size(), 6u);
}

}  // namespace
}  // namespace amalgam::detail
