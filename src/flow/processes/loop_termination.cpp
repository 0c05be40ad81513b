#include "flow/processes/loop_termination.hpp"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "flow/channel/reach.hpp"
#include "flow/channel/wire.hpp"
#include "flow/limits.hpp"
#include "flow/processes/loop_rounds.hpp"

namespace amalgam::detail {
namespace {

bool has_left(const status& code) noexcept {
    return code == errc::disconnected || code == errc::unreachable || code == errc::unavailable ||
           code == errc::closed;
}

}  // namespace

std::vector<std::size_t> groups_of_loop(const graph_core& graph, std::size_t loop) {
    std::set<std::size_t> groups;
    for (const graph_node& node : graph.nodes())
        if (std::find(node.loops.begin(), node.loops.end(), loop) != node.loops.end())
            groups.insert(node.groups.front());
    return {groups.begin(), groups.end()};
}

loop_termination::loop_termination(run_context& run) : run_(run) {
    for (std::size_t i = 0; i < run_.graph.loops(); ++i) {
        std::vector<std::size_t> groups = groups_of_loop(run_.graph, i);
        // For a loop within one group, each process has a loop of its own.
        if (groups.size() < 2 ||
            std::find(groups.begin(), groups.end(), run_.here.group) == groups.end())
            continue;
        run_.nodes.loop(i).share();
        loops_.push_back({static_cast<std::uint32_t>(i), std::move(groups), {}});
    }
    run_.over.define(library_name{wire::loop_counts},
                     [this](std::uint32_t number) { return serve_counts(number); });
    run_.over.define(library_name{wire::loop_over},
                     [this](std::uint32_t number) { loop_of(number).end(); });
}

loop_count& loop_termination::loop_of(std::uint32_t number) {
    if (number >= run_.graph.loops())
        throw error(errc::invalid, fmt::format("there is no loop {}", number));
    return run_.nodes.loop(number);
}

std::vector<std::uint64_t> loop_termination::serve_counts(std::uint32_t number) {
    const loop_count& of = loop_of(number);
    for (shared_loop& each : loops_)
        if (each.number == number) each.asked = each.ever_asked = true;
    if (!run_.nodes.has_started()) return {};
    return {of.added(), of.taken()};
}

bool loop_termination::is_ours(const shared_loop& loop) const {
    return run_.here == process_id{loop.groups.front(), 0};
}

void loop_termination::watch_all(const address_book& addresses) {
    for (shared_loop& loop : loops_) {
        if (!is_ours(loop)) continue;
        std::vector<std::string> all;
        for (const std::size_t group : loop.groups)
            all.insert(all.end(), addresses[group].begin(), addresses[group].end());
        loop.watcher = amalgam::spawn(run_.over.stream(), [this, &loop, all] { watch(loop, all); });
    }
}

/// Polls all processes of the loop, until their counts show that it has ended.
void loop_termination::watch(const shared_loop& loop, const std::vector<std::string>& all) {
    using answer = future<std::vector<std::uint64_t>>;
    auto counts = run_.over.procedure<wire::loop_counts_signature>(wire::loop_counts);
    const auto ask = [&](const std::string& address) -> result<answer> {
        try {
            return counts.on(address).within(limits::loop_answer_limit).start(loop.number);
        } catch (const error& wrong) {
            return {wrong.code().code, wrong.what()};
        }
    };
    std::vector<clock::time_point> heard(all.size(), run_.over.now());
    loop_rounds rounds;
    auto pause = std::chrono::milliseconds(1);
    while (!run_.closed.wait_for(pause)) {
        pause = std::min(pause * 2, std::chrono::milliseconds(16));
        std::vector<result<answer>> answers;
        for (const std::string& address : all)
            answers.push_back(ask(address));
        for (std::size_t i = 0; i < all.size(); ++i) {
            try {
                rounds.hear(std::move(answers[i]).value().get());
                heard[i] = run_.over.now();
            } catch (const error& wrong) {
                rounds.miss();
                // Not started yet, or lost: its direct neighbors report that. But if only this
                // process cannot reach it, nobody else will report it.
                const bool may_answer = may_come(wrong.code().code) || has_left(wrong.code()) ||
                                        wrong.code() == errc::overloaded;
                if (may_answer && run_.over.now() - heard[i] < run_.options.join_limit) continue;
                return fail_to_watch(loop, all[i], {wrong.code(), wrong.what()});
            }
        }
        if (rounds.is_over()) return end_everywhere(loop, all);
    }
}

bool loop_termination::are_watched(clock::duration pause) {
    return std::all_of(loops_.begin(), loops_.end(),
                       [&](shared_loop& loop) { return is_watched(loop, pause); });
}

void loop_termination::join() {
    for (shared_loop& loop : loops_)
        if (loop.watcher.joinable()) loop.watcher.join();
}

/// Checks once whether the loop is still being watched; after too many checks without, the run
/// fails.
bool loop_termination::is_watched(shared_loop& loop, clock::duration pause) {
    if (is_ours(loop) || run_.nodes.loop(loop.number).is_over() || !run_.nodes.has_started() ||
        loop.asked) {
        loop.asked = false;
        loop.checks_without = 0;
        return true;
    }
    // A round takes as long as its slowest answer. At first, processes may still be waiting to
    // join.
    constexpr clock::duration year = std::chrono::hours(24 * 365);
    const clock::duration longest =
        loop.ever_asked
            ? std::max<clock::duration>(run_.options.silence_limit, 5 * limits::loop_answer_limit)
            : 2 * std::min<clock::duration>(run_.options.join_limit, year);
    if (++loop.checks_without * pause < longest) return true;
    run_.nodes.fail(
        {{{errc::disconnected},
          fmt::format("group {} has not checked for {} s whether a loop has ended, expected "
                      "its first process to detect it",
                      run_.label({loop.groups.front(), 0}),
                      std::chrono::duration<double>(longest).count())},
         true});
    return false;
}

void loop_termination::fail_to_watch(const shared_loop& loop, const std::string& address,
                                     const failure& why) {
    run_.nodes.fail(
        {{why.what,
          fmt::format(
              "cannot ask the process at {} whether its part of a loop has ended ({}), expected "
              "the first process of group {} to reach every process with a part of the loop",
              address, why.sentence, run_.graph.group_names()[loop.groups.front()])}});
}

void loop_termination::end_everywhere(const shared_loop& loop,
                                      const std::vector<std::string>& all) {
    auto over = run_.over.procedure<wire::loop_over_signature>(wire::loop_over);
    const auto tell = [&](const std::string& address) -> result<void> {
        try {
            return over.on(address).within(limits::loop_answer_limit).try_call(loop.number);
        } catch (const error& wrong) {
            return {wrong.code().code, wrong.what()};
        }
    };
    for (const std::string& address : all) {
        for (;;) {
            const result<void> told = tell(address);
            // Its channels may have ended first, and it has left. If it is lost instead, its direct
            // neighbors report that.
            if (told || has_left(told.code())) break;
            if (told.code() == errc::timed_out && !run_.closed.is_set()) continue;
            run_.nodes.fail(
                {{told.code(),
                  fmt::format("cannot tell the process at {} that a loop has ended ({})", address,
                              told.sentence())},
                 true});
            break;
        }
    }
}

}  // namespace amalgam::detail
