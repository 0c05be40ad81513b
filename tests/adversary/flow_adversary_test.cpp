// A hostile group of a run. It runs its own part, and also calls the procedures of a run
// (src/flow/channel/wire.hpp) in allowed and forbidden ways: in its own name and in others', before
// it has joined and after the end. The other groups end in time: with the result of a plain loop,
// or with an error.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/wire.hpp"
#include "flow/graph/random_graph.hpp"
#include "flow/limits.hpp"
#include "flow/run/simulated_run.hpp"
#include "rpc/loop_pair.hpp"
#include "seeded_runs.hpp"

namespace amalgam::adversary {
namespace {

using namespace std::chrono_literals;
using namespace detail;

/// Longer than every timeout of a run.
constexpr auto long_enough = 2min;

/// How far it goes.
enum class lies : std::uint8_t {
    of_others,  ///< Its own work is correct, but it calls what it has no right to.
    of_its_own  ///< Its own items, ends, answers and counts are wrong, too.
};

class liar {
public:
    /// `item` returns the bytes of an item that it may send.
    liar(simulated_run& all, std::size_t which, lies how, std::uint64_t seed,
         std::function<std::string(seeded_random&)> item)
        : dice_(seed), me_(*all.processes[which]), how_(how), item_(std::move(item)) {
        for (const auto& one : all.processes)
            if (one.get() != &me_) others_.push_back("loop://" + one->label);
    }

    /// Runs until it has lied `times` times, or is stopped. After simulated_run::start().
    void begin(std::uint64_t times) {
        done_ = me_.over->spawn([this, times] {
            try {
                for (std::uint64_t i = 0; i < times; ++i) {
                    this_task::sleep_for(std::chrono::microseconds(dice_.below(60)));
                    lie();
                }
            } catch (const error&) {
                // Stopped.
            }
        });
    }
    /// Whether any of its lies may affect the results.
    bool changes_items() const noexcept { return changes_items_; }
    /// Whether it joins under others' names: then they may be blamed for its actions.
    bool poses() const noexcept { return poses_; }

private:
    /// Small, near a limit, or any.
    std::uint64_t number() {
        constexpr std::uint64_t edges[] = {0, 1, 4096, 65535, 1u << 20, 0xffffffff};
        const std::uint64_t edge = edges[dice_.below(std::size(edges))];
        switch (dice_.below(6)) {
            case 0:
                return dice_();
            case 1:
                return ~edge;
            case 2:
                return edge + 1;
            default:
                return dice_.below(8);
        }
    }
    std::uint32_t number32() { return static_cast<std::uint32_t>(number()); }

    struct way {
        std::uint32_t edge = 0, replica = 0;
    };
    /// An edge and a replica of its other end: one of its own edges, if it lies in its own name;
    /// else any but those on which it may speak.
    way some_way(bool as_sender) {
        const graph_core& core = me_.built.core();
        for (;;) {
            const way made{
                dice_.chance(0.9) ? static_cast<std::uint32_t>(dice_.below(core.edges().size() + 1))
                                  : number32(),
                dice_.chance(0.9) ? static_cast<std::uint32_t>(dice_.below(2)) : number32()};
            if (made.edge >= core.edges().size()) return made;
            const graph_edge& edge = core.edges()[made.edge];
            const std::size_t end = as_sender ? edge.from : edge.to;
            const bool is_mine = core.nodes()[end].groups.front() == me_.where.group &&
                                 made.replica == me_.where.replica;
            if (!is_mine) return made;
            if (how_ == lies::of_others) continue;
            changes_items_ = true;
            return made;
        }
    }
    std::string text() {
        const std::size_t bytes = dice_.chance(0.1) ? 100'000 : dice_.below(60);
        std::string made(bytes, 'x');
        for (char& each : made)
            if (dice_.chance(0.3)) each = static_cast<char>(dice_());
        return made;
    }
    peer somebody() { return me_.over->lookup(others_[dice_.below(others_.size())]); }

    template <typename Signature, typename... Arguments>
    void start(const char* name, const Arguments&... arguments) {
        asked_.emplace_back(std::make_shared<future<result_of<Signature>>>(
            me_.over->procedure<Signature>(name).on(somebody()).start(arguments...)));
    }
    template <typename Signature, typename... Arguments>
    void post(const char* name, const Arguments&... arguments) {
        me_.over->procedure<Signature>(name).on(somebody()).post(arguments...);
    }
    template <typename Signature>
    struct result_type;
    template <typename Result, typename... Arguments>
    struct result_type<Result(Arguments...)> {
        using type = Result;
    };
    template <typename Signature>
    using result_of = typename result_type<Signature>::type;

    void lie() {
        switch (dice_.below(10)) {
            case 0:
                return join();
            case 1:
            case 2:
                return send_batch();
            case 3:
                return flood();
            case 4: {
                const way to = some_way(true);
                return start<wire::end_signature>(wire::end, to.edge, to.replica, number(),
                                                  number());
            }
            case 5:
            case 6: {
                const way to = some_way(false);
                return post<wire::credit_signature>(wire::credit, to.edge, to.replica, number(),
                                                    number());
            }
            case 7:
                return ask_about_loops();
            case 8:
                return call_wrongly();
            default:
                if (how_ == lies::of_its_own && dice_.chance(0.3)) answer_wrongly();
        }
    }

    void join() {
        std::string graph = me_.built.core().fingerprint();
        if (dice_.chance(0.3)) graph = dice_.chance(0.5) ? text() : graph.substr(1);
        const bool as_others = poses_ && dice_.chance(0.5);
        start<wire::join_signature>(
            wire::join, graph,
            as_others ? static_cast<std::uint32_t>(dice_.below(6))
                      : static_cast<std::uint32_t>(me_.where.group),
            as_others ? number32() : static_cast<std::uint32_t>(me_.where.replica));
    }

    void send_batch() {
        const way to = some_way(true);
        std::string bytes;
        std::uint32_t items = 0;
        for (std::uint64_t more = dice_.below(4); more != 0; --more, ++items)
            bytes += item_(dice_);
        if (dice_.chance(0.2)) bytes = text();
        if (dice_.chance(0.2)) bytes.resize(dice_.below(bytes.size() + 1));
        if (dice_.chance(0.2)) bytes += text();
        if (dice_.chance(0.2)) items = number32();
        post_batch(to, number(), items, bytes);
    }
    /// More than anybody's credit allows.
    void flood() {
        const way to = some_way(true);
        const std::string bytes(1 + dice_.below(3000), 'f');
        const std::uint64_t first = number(), step = dice_.chance(0.5) ? 1 : 2;
        for (std::uint64_t i = 0; i < 50; ++i)
            post_batch(to, first + i * step, 1, bytes);
    }
    void post_batch(const way& to, std::uint64_t number, std::uint32_t items,
                    const std::string& bytes) {
        post<wire::batch_signature>(wire::batch, to.edge, to.replica, number, items,
                                    std::as_bytes(std::span(bytes)));
    }

    void ask_about_loops() {
        const std::uint32_t loop = dice_.chance(0.7) ? 0 : number32();
        if (how_ == lies::of_its_own && dice_.chance(0.3)) {
            start<wire::loop_over_signature>(wire::loop_over, loop);
        } else {
            start<wire::loop_counts_signature>(wire::loop_counts, loop);
        }
    }

    void call_wrongly() {
        switch (dice_.below(4)) {
            case 0:
                return start<wire::stay_signature>(wire::stay);
            case 1:  // Of other types.
                return start<int(std::string)>(wire::end, text());
            case 2:
                return post<void(std::uint64_t)>(wire::batch, number());
            default:
                return start<void(std::vector<std::string>)>("amalgam.flow.nothing",
                                                             std::vector<std::string>{text()});
        }
    }

    /// From here on it answers one procedure arbitrarily.
    void answer_wrongly() {
        changes_items_ = true;
        engine& mine = *me_.over;
        const auto serve = [&](const char* name, auto function) {
            (void)mine.undefine(library_name{name});
            mine.define(library_name{name}, std::move(function));
        };
        const std::string words = dice_.chance(0.5) ? "" : text();
        const bool waits = dice_.chance(0.2);
        const auto say = [words, waits] {
            if (waits) this_task::sleep_for(1min);
            return words;
        };
        switch (dice_.below(5)) {
            case 0:
                return serve(wire::stay, say);
            case 1:
                return serve(wire::end, [say](std::uint32_t, std::uint32_t, std::uint64_t,
                                              std::uint64_t) { return say(); });
            case 2:
                return serve(wire::batch, [this](std::uint32_t edge, std::uint32_t, std::uint64_t,
                                                 std::uint32_t, std::span<const std::byte>) {
                    me_.over->procedure<wire::credit_signature>(wire::credit)
                        .on(call_context::current().from())
                        .post(edge, static_cast<std::uint32_t>(me_.where.replica), number(),
                              number());
                });
            case 3:
                return serve(wire::credit,
                             [](std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t) {});
            default:
                return serve(wire::loop_counts, [this](std::uint32_t) {
                    return std::vector<std::uint64_t>(dice_.below(4), number());
                });
        }
    }

    seeded_random dice_;
    simulated_run::process& me_;
    const lies how_;
    std::function<std::string(seeded_random&)> item_;
    std::vector<std::string> others_;
    std::vector<std::shared_ptr<void>> asked_;
    bool changes_items_ = false;
    const bool poses_ = dice_.chance(0.3);
    future<void> done_;
};

/// A run in which one process lies until the end.
class lied_to {
public:
    lied_to(simulated_run& all, std::size_t which, std::uint64_t seed)
        : all_(all), liar_(which), dice_(~seed) {}

    void run(liar& one, std::size_t most_handlers) {
        simulated_run::process& bad = all_[liar_];
        const bool first = dice_.chance(0.5);  // Before the others have started, or after.
        if (first) begin(bad, one);
        for (auto& each : all_.processes) {
            if (each.get() == &bad) continue;
            all_.start(*each);
            if (dice_.chance(0.3)) all_.net.run_for(std::chrono::microseconds(dice_.below(2000)));
        }
        if (!first) begin(bad, one);
        const auto leaves_at = all_.net.now() + std::chrono::microseconds(dice_.below(20'000));
        const bool leaves = dice_.chance(0.5);
        const auto lies_until = all_.net.now() + 50ms;
        const auto killed_at = all_.net.now() + 5s, limit = all_.net.now() + long_enough;
        while (all_.net.now() < limit && !others_are_over()) {
            std::vector<simulated_run::process*> ended;
            for (auto& each : all_.processes)
                if (each->running->over().is_set()) ended.push_back(each.get());
            all_.net.run_for(all_.net.now() < lies_until ? 1ms : 100ms);
            for (auto& each : all_.processes) {
                if (each.get() == &bad) continue;
                ASSERT_LE(counters_of(*each->over)["rpc.running_one_ways"], most_handlers)
                    << each->label << " holds more than it gave room for";
            }
            if (!gone_ && leaves && all_.net.now() > leaves_at) leave(bad);
            if (!gone_ && all_.net.now() > killed_at) {
                gone_ = true;
                all_.net.kill(bad.label);
            }
            for (simulated_run::process* each : ended)
                each->over->stop();
        }
        EXPECT_TRUE(others_are_over()) << "somebody waits for ever";
        all_is_well_ =
            std::all_of(all_.processes.begin(), all_.processes.end(), [](const auto& each) {
                return each->running->over().is_set() && !each->running->failed();
            });
        for (std::size_t i = 0; i < all_.processes.size(); ++i)
            if (i != liar_ && all_[i].running->over().is_set()) look_at_failure(i, one.poses());
        // Its own part must end before it is destroyed.
        give_up(bad);
        all_.net.run_for(10s);
    }
    /// Whether nobody reported an error, including the liar's own part.
    bool all_is_well() const noexcept { return all_is_well_; }
    /// Whether the others report success.
    bool all_is_well_elsewhere() {
        for (std::size_t i = 0; i < all_.processes.size(); ++i)
            if (i != liar_ && all_[i].running->failed()) return false;
        return others_are_over();
    }

private:
    void begin(simulated_run::process& bad, liar& one) {
        all_.start(bad);
        one.begin(dice_.below(80));
        all_.net.run_for(std::chrono::microseconds(dice_.below(1000)));
    }
    void leave(simulated_run::process& bad) {
        gone_ = true;
        dice_.chance(0.5) ? give_up(bad) : all_.net.kill(bad.label);
    }
    static void give_up(simulated_run::process& bad) {
        bad.running->fail({{{errc::canceled}, "it \x1b[31mleaves"}});
    }
    bool others_are_over() {
        for (std::size_t i = 0; i < all_.processes.size(); ++i)
            if (i != liar_ && !all_[i].running->over().is_set()) return false;
        return true;
    }
    void look_at_failure(std::size_t i, bool liar_poses) {
        const auto failed = all_[i].running->failed();
        if (!failed) return;
        const std::string& why = failed->what.sentence;
        EXPECT_FALSE(failed->what.what.ok());
        EXPECT_TRUE(why.find("group ") != std::string::npos ||
                    why.find("node ") != std::string::npos || why.find("loop") != std::string::npos)
            << all_[i].label << " names nobody: " << why;
        const std::string rules = " violated the protocol";
        if (const std::size_t at = why.find(rules); at != std::string::npos && !liar_poses) {
            EXPECT_TRUE(why.substr(0, at).ends_with("group " + all_[liar_].label))
                << "another is blamed: " << why;
        }
        EXPECT_LE(why.size(), 5000u * all_.processes.size());
    }

    simulated_run& all_;
    const std::size_t liar_;
    seeded_random dice_;
    bool gone_ = false;
    bool all_is_well_ = false;
};

// ---- random graphs

std::string some_item(seeded_random& dice) {
    const std::uint64_t numbers[] = {dice(), dice.below(3), dice()};
    return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}

void run_random_graph(std::uint64_t seed, lies how) {
    const auto plan = random_graph::draw(seed, 4);
    const std::size_t groups = random_graph::groups_of(plan).size();
    if (groups < 2) return;
    seeded_random dice(~seed);
    random_graph::outcome outcome;
    const run_options options{.batch_bytes = 64 + dice.below(1000),
                              .window_bytes = 64 + dice.below(4000)};
    simulated_run all(random_graph::config_text(plan, [](const auto& g) { return "loop://" + g; }),
                      options,
                      [&](graph& g, const process_id&) { random_graph::build(g, plan, outcome); },
                      {.seed = seed});
    all.net.delay(0us, std::chrono::microseconds(dice.below(200)));
    all.net.reorder(dice.chance(0.5));
    const std::size_t edges = all[0].built.core().edges().size();
    const std::size_t which = dice.below(groups);
    liar one(all, which, how, seed, some_item);
    lied_to run(all, which, seed);
    run.run(one, edges * (options.window_bytes / limits::batch_overhead + 8));
    if (run.all_is_well() && !one.changes_items()) {
        EXPECT_EQ(random_graph::all_of(outcome), random_graph::expected(plan))
            << "and nobody says so";
        EXPECT_EQ(outcome.overtaken, "");
    }
    if (!one.changes_items()) {
        const auto got = random_graph::all_of(outcome), expected = random_graph::expected(plan);
        EXPECT_TRUE(std::includes(expected.begin(), expected.end(), got.begin(), got.end()))
            << "a sink got what nobody had to send, or something twice";
    }
}

TEST(flow_adversary, calls_in_others_names_change_nothing_that_nobody_notices) {
    for (const std::uint64_t seed : seeded_runs(40)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run_random_graph(seed, lies::of_others);
    }
}

TEST(flow_adversary, a_group_that_lies_of_its_own_items_ends_the_others_in_time) {
    for (const std::uint64_t seed : seeded_runs(40)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        run_random_graph(seed, lies::of_its_own);
    }
}

// ---- a farm with one honest worker

constexpr std::uint64_t made_up = std::uint64_t{1} << 40;

/// A source in H0 and a sink in H2; between them a worker in H1 for even numbers, and the liar's
/// for odd ones.
TEST(flow_adversary, what_goes_past_the_liar_arrives_or_somebody_says_so) {
    std::size_t well = 0, runs = 0;
    for (const std::uint64_t seed : seeded_runs(40)) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        seeded_random dice(~seed);
        const std::uint64_t items = dice.below(400);
        std::vector<std::uint64_t> even;
        const run_options options{.batch_bytes = 16 + dice.below(300),
                                  .window_bytes = 64 + dice.below(1000)};
        simulated_run all(
            R"({"groups": {"H0": {"endpoint": "loop://H0"}, "H1": {"endpoint": "loop://H1"},
                           "L": {"endpoint": "loop://L"}, "H2": {"endpoint": "loop://H2"}}})",
            options,
            [&](graph& g, const process_id&) {
                auto from = g.add_source<std::uint64_t>("from", [=](auto& out) {
                    for (std::uint64_t i = 0; i < items; ++i)
                        out.send(i);
                });
                std::vector<block<std::uint64_t, std::uint64_t>> workers;
                for (const char* name : {"even", "odd"})
                    workers.push_back(g.add_stage<std::uint64_t, std::uint64_t>(
                        name, [](std::uint64_t n) { return n; }));
                auto to = g.add_sink<std::uint64_t>("to", [&even](std::uint64_t n) {
                    if (n % 2 == 0 && n < made_up) even.push_back(n);
                });
                auto farm =
                    g.farm(workers, route_by([](std::uint64_t n, std::size_t) { return n % 2; }));
                g.pipeline(from, farm, to);
                g.group("H0").add(from);
                g.group("H1").add(workers[0]);
                g.group("L").add(workers[1]);
                g.group("H2").add(to);
            },
            {.seed = seed});
        all.net.delay(0us, std::chrono::microseconds(dice.below(200)));
        all.net.reorder(dice.chance(0.5));
        liar one(all, 2, lies::of_its_own, seed, [](seeded_random& random) {
            const std::uint64_t n = made_up | random.below(1000);
            return std::string(reinterpret_cast<const char*>(&n), sizeof n);
        });
        lied_to run(all, 2, seed);
        run.run(one, 4 * (options.window_bytes / limits::batch_overhead + 8));
        ++runs;
        if (!run.all_is_well_elsewhere()) continue;
        ++well;
        std::vector<std::uint64_t> expected;
        for (std::uint64_t i = 0; i < items; i += 2)
            expected.push_back(i);
        EXPECT_EQ(even, expected) << "and nobody says so";
    }
    if (runs > 20) {
        EXPECT_GT(well, 0u) << "every run fails: what goes well is not tested";
    }
}

}  // namespace
}  // namespace amalgam::adversary
