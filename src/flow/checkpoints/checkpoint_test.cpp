// Checkpoints of runs over several groups, on a simulated network: taken at any moment, they fit
// together, and a run that goes on from one ends as a plain loop does.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contains.hpp"
#include "flow/checkpoints/summing_graph.hpp"
#include "flow/run/simulated_run.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* three_groups = R"({"groups": {"G0": {"endpoint": "loop://G0"},
    "G1": {"endpoint": ["loop://G1.0", "loop://G1.1"], "replicas": 2},
    "G2": {"endpoint": "loop://G2"}}})";

constexpr std::uint64_t items = 900;
const run_options little{.queue_items = 4, .batch_bytes = 64, .window_bytes = 200};

struct summing_run {
    /// `at_event` is called with the number of each step and item, in any process.
    explicit summing_run(std::function<void(summing_run&, std::uint64_t)> at_event = {}) {
        watched.on_end = [this](const summing::outcome& all) { results.push_back(all); };
        watched.on_item = watched.between_steps = [this, at_event = std::move(at_event)] {
            ++events;
            if (at_event) at_event(*this, events);
        };
        run.takes_checkpoints = true;
    }
    void begin(std::uint64_t number) {
        for (auto& one : run.processes)
            one->running->nodes().begin_checkpoint(number);
    }
    /// Goes on until nothing happens any more.
    void finish() {
        run.run_until_idle();
        for (std::size_t i = 0; i < run.processes.size(); ++i)
            EXPECT_EQ(run.failure_of(i), "");
    }
    bool has(std::uint64_t number) const {
        for (const auto& each : run.processes)
            if (each->checkpoints.count(number) == 0) return false;
        return true;
    }

    std::uint64_t events = 0;
    std::vector<summing::outcome> results;
    summing::hooks watched;
    simulated_run run{three_groups, little, [this](graph& into, const process_id&) {
                          summing::build(into, items, watched);
                      }};
};

void expect_right(const std::vector<summing::outcome>& results) {
    ASSERT_EQ(results.size(), 1u);
    const summing::outcome right = summing::expected(items);
    EXPECT_EQ(results[0].items, right.items);
    EXPECT_EQ(results[0].sum, right.sum);
    EXPECT_EQ(results[0].counts, right.counts);
}

TEST(checkpoint, taken_at_any_moment_lets_a_run_go_on_to_the_result_of_a_plain_loop) {
    unsigned before_the_end = 0;
    for (std::uint64_t moment = 1; moment < 3000; moment += 71) {
        summing_run first([moment](summing_run& all, std::uint64_t event) {
            if (event == moment) all.begin(1);
        });
        first.run.start_all();
        // What is taken may come late; so each run goes on to its end.
        first.finish();
        expect_right(first.results);
        if (first.events < moment) break;
        ASSERT_TRUE(first.has(1)) << moment;

        summing_run second;
        for (std::size_t i = 0; i < second.run.processes.size(); ++i)
            second.run.processes[i]->restored = first.run.processes[i]->checkpoints[1];
        bool sink_had_ended = false;
        for (const node_record& each : first.run.processes[3]->checkpoints[1])
            sink_had_ended = sink_had_ended || (each.name == "summer" && each.ended);
        second.run.start_all();
        second.finish();
        if (sink_had_ended) {  // Its end() has been called, and is not again.
            EXPECT_TRUE(second.results.empty());
            continue;
        }
        ++before_the_end;
        expect_right(second.results);
    }
    EXPECT_GT(before_the_end, 10u);
}

TEST(checkpoint, several_in_a_row_are_each_whole) {
    std::uint64_t number = 0;
    summing_run first([&number](summing_run& all, std::uint64_t event) {
        if (event > 2500 || (number != 0 && !all.has(number))) return;
        all.begin(++number);
    });
    first.run.start_all();
    first.finish();
    expect_right(first.results);
    EXPECT_GT(number, 5u);
    summing_run last;
    for (std::size_t i = 0; i < last.run.processes.size(); ++i)
        last.run.processes[i]->restored = first.run.processes[i]->checkpoints[number / 2];
    last.run.start_all();
    last.finish();
    expect_right(last.results);
}

TEST(checkpoint, that_is_not_of_these_nodes_is_refused_by_name) {
    summing_run first([](summing_run& all, std::uint64_t event) {
        if (event == 100) all.begin(1);
    });
    first.run.start_all();
    first.finish();
    const auto refusal = [&](auto change) {
        summing_run second;
        for (std::size_t i = 0; i < second.run.processes.size(); ++i) {
            second.run.processes[i]->restored = first.run.processes[i]->checkpoints[1];
            change(*second.run.processes[i]->restored);
        }
        try {
            second.run.start_all();
        } catch (const error& why) {
            return std::string(why.what());
        }
        return std::string("none");
    };
    const auto nothing = [](std::vector<node_record>& all) { all.clear(); };
    EXPECT_TRUE(contains(refusal(nothing), "cannot be read (it is not there)")) << refusal(nothing);
    const auto no_inputs = [](std::vector<node_record>& all) {
        for (node_record& each : all)
            each.ended_inputs.clear();
    };
    EXPECT_TRUE(contains(refusal(no_inputs), "it has other inputs")) << refusal(no_inputs);
}

struct steps : source<int> {
    bool step(outlet<int>&) { return false; }
    template <typename Archive>
    void serialize(Archive& archive) {
        archive(at);
    }
    int at = 0;
};

int next_of(int n) noexcept {
    return n + 1;
}

std::string refusal(const graph& of) {
    std::string sentence;
    EXPECT_FALSE(of.core().check_checkpoints(sentence).ok());
    return sentence;
}

TEST(checkpoint, graphs_that_cannot_be_saved_are_refused_with_the_node_and_what_to_write) {
    const auto count_to = [](outlet<int>& out) { out.send(1); };
    {
        graph g;
        g.pipeline(g.add_source<int>("from", count_to), g.add_sink<int>("to", [](int) {}));
        EXPECT_TRUE(contains(refusal(g), "the node \"from\" is a source that runs on its own"));
    }
    {
        graph g;
        int sum = 0;
        g.pipeline(g.add<steps>("from"), g.add_sink<int>("to", [&sum](int n) { sum += n; }));
        EXPECT_TRUE(contains(refusal(g), "the node \"to\" has members"));
    }
    {
        graph g;
        auto loop = g.feedback(g.add_stage<int, int>("more", [](int n) { return n + 1; }),
                               [](const int& n) { return n < 5; });
        g.pipeline(g.add<steps>("from"), loop, g.add_sink<int>("to", [](int) {}));
        EXPECT_TRUE(contains(refusal(g), "the graph has a loop"));
    }
    {
        graph g;
        auto farm = g.add_ordered_farm<int, int>("work", 2, [](int n) { return n; });
        g.pipeline(g.add<steps>("from"), farm, g.add_sink<int>("to", [](int) {}));
        EXPECT_TRUE(contains(refusal(g), "\"work.emitter\" is of an ordered farm"));
    }
    graph g;
    g.pipeline(g.add<steps>("from"), g.add_stage<int, int>("next", &next_of),
               g.add_sink<int>("to", [](int) {}));
    std::string sentence;
    EXPECT_TRUE(g.core().check_checkpoints(sentence).ok()) << sentence;
}

}  // namespace
}  // namespace amalgam::detail
