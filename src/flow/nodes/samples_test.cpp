#include "flow/nodes/samples.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/nodes/local_nodes.hpp"
#include "flow/nodes/streams.hpp"

namespace amalgam {
namespace {

using cause = bottleneck_report::cause;

/// Runs a source and a sink that does `work` for its only item, and looks at them until what holds
/// them up is `expected`. Then `let_go` lets `work` return.
bottleneck_report held_up(cause expected, const std::function<void()>& work,
                          const std::function<void()>& let_go, unsigned threads = 2) {
    graph g;
    const auto from = g.add_source<int>("from", [](outlet<int>& out) { out.send(7); });
    const auto to = g.add_sink<int>("to", [&](int) { work(); });
    g.pipeline(from, to);
    std::string sentence;
    EXPECT_TRUE(g.core().check(nullptr, sentence).ok()) << sentence;
    std::vector<std::size_t> all(g.core().nodes().size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const run_options options{.threads = threads};
    const detail::node_streams streams(g.core(), all, options);
    detail::local_nodes nodes(g.core(), all, place{}, streams, options);
    nodes.sample();  // Before the start: nothing.
    nodes.start();
    bottleneck_report found;
    int looks = 0;
    do {
        nodes.sample();
        found = nodes.report().explain();
        ++looks;
        // On a busy machine, who computes waits for a core, too.
        if (expected == cause::work && found.why == cause::core) found.why = cause::work;
    } while (found.why != expected || found.node != "to" || looks < 20);
    let_go();
    nodes.ended().wait();
    return found;
}

TEST(node_samples, see_a_node_that_computes) {
    std::atomic<bool> enough{false};
    held_up(
        cause::work,
        [&] {
            while (!enough) {
            }
        },
        [&] { enough = true; });
}

TEST(node_samples, see_a_node_that_waits_for_a_mutex_of_threads) {
    std::mutex held;
    held.lock();
    const bottleneck_report found = held_up(
        cause::lock, [&] { const std::lock_guard mine(held); }, [&] { held.unlock(); });
    EXPECT_NE(found.sentence.find("\"to\", which waited for a lock"), std::string::npos)
        << found.sentence;
}

TEST(node_samples, see_a_node_that_waits_for_a_mutex_of_tasks) {
    amalgam::mutex held;
    held.lock();
    held_up(
        cause::lock, [&] { const std::lock_guard mine(held); }, [&] { held.unlock(); });
}

TEST(node_samples, see_a_node_that_waits_for_an_event_or_reads) {
    event set;
    held_up(
        cause::outside, [&] { set.wait(); }, [&] { set.set(); });
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const unique_fd reading(ends[0]), writing(ends[1]);
    char got = 0;
    held_up(
        cause::outside, [&] { ASSERT_EQ(::read(reading.get(), &got, 1), 1); },
        [&] { ASSERT_EQ(::write(writing.get(), "x", 1), 1); });
}

TEST(node_samples, see_a_node_whose_thread_is_taken) {
    event turn;
    std::atomic<bool> taken{false}, enough{false};
    graph g;
    // One thread: the source keeps it, while the sink could continue.
    const auto from = g.add_source<int>("from", [&](outlet<int>& out) {
        out.send(7);
        while (!taken)
            this_task::yield();
        turn.set();
        while (!enough) {
        }
    });
    const auto to = g.add_sink<int>("to", [&](int) {
        taken = true;
        turn.wait();
    });
    g.pipeline(from, to);
    std::string sentence;
    ASSERT_TRUE(g.core().check(nullptr, sentence).ok()) << sentence;
    std::vector<std::size_t> all{0, 1};
    const run_options options{.threads = 1};
    const detail::node_streams streams(g.core(), all, options);
    detail::local_nodes nodes(g.core(), all, place{}, streams, options);
    nodes.start();
    const auto sink = [&] {
        const run_report so_far = nodes.report();
        return so_far.nodes[0].name == "to" ? so_far.nodes[0] : so_far.nodes[1];
    };
    while (sink().waited_for_core == 0)
        nodes.sample();
    enough = true;
    nodes.ended().wait();
    EXPECT_GT(nodes.report().processes.at(0).resident_bytes, 0u);
    EXPECT_GT(nodes.report().processes.at(0).processor_seconds, 0);
}

}  // namespace
}  // namespace amalgam
