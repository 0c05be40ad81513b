#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <fmt/format.h>

#include <amalgam/tasks/ult.hpp>

#include "flow/channel/exchange.hpp"
#include "flow/channel/loop_rounds.hpp"
#include "flow/channel/wire.hpp"
#include "flow/graph/reach.hpp"

// How loops that span processes end.

namespace amalgam::detail {
namespace {

/// For one answer about a loop; close() waits this long at most.
constexpr auto loop_patience = std::chrono::seconds(1);

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

void exchange::derive_loops() {
    for (std::size_t i = 0; i < graph_.loops(); ++i) {
        std::vector<std::size_t> groups = groups_of_loop(graph_, i);
        // For a loop within one group, each process has a loop of its own.
        if (groups.size() < 2 ||
            std::find(groups.begin(), groups.end(), here_.group) == groups.end())
            continue;
        part_.loop(i).share();
        loops_.push_back({static_cast<std::uint32_t>(i), std::move(groups), {}});
    }
}

const loop_count* exchange::loop_of_way_back(std::size_t edge) {
    for (const graph_port& port : graph_.nodes()[graph_.edges()[edge].from].back)
        if (std::find(port.edges.begin(), port.edges.end(), edge) != port.edges.end())
            return &part_.loop(port.loop);
    return nullptr;
}

void exchange::watch_loops(const address_book& addresses) {
    for (shared_loop& loop : loops_) {
        if (here_ != seat{loop.groups.front(), 0}) continue;
        std::vector<std::string> all;
        for (const std::size_t group : loop.groups)
            all.insert(all.end(), addresses[group].begin(), addresses[group].end());
        loop.watcher = amalgam::spawn(over_.stream(), [this, &loop, all] { watch(loop, all); });
    }
}

/// Polls all processes of the loop, until their counts show that it has ended.
void exchange::watch(const shared_loop& loop, const std::vector<std::string>& all) {
    using answer = future<std::vector<std::uint64_t>>;
    auto counts = over_.procedure<wire::loop_counts_signature>(wire::loop_counts);
    const auto ask = [&](const std::string& address) -> result<answer> {
        try {
            return counts.on(address).within(loop_patience).start(loop.number);
        } catch (const error& wrong) {
            return {wrong.code().code, wrong.what()};
        }
    };
    std::vector<clock::time_point> heard(all.size(), over_.now());
    loop_rounds rounds;
    auto pause = std::chrono::milliseconds(1);
    while (!over_here_.wait_for(pause)) {
        pause = std::min(pause * 2, std::chrono::milliseconds(16));
        std::vector<result<answer>> answers;
        for (const std::string& address : all)
            answers.push_back(ask(address));
        for (std::size_t i = 0; i < all.size(); ++i) {
            try {
                rounds.hear(std::move(answers[i]).value().get());
                heard[i] = over_.now();
            } catch (const error& wrong) {
                rounds.miss();
                // Not started yet, or lost: its direct companions report that. But if only this
                // process cannot reach it, nobody else will report it.
                const bool may_answer = may_come(wrong.code().code) || has_left(wrong.code()) ||
                                        wrong.code() == errc::overloaded;
                if (may_answer && over_.now() - heard[i] < options_.join_limit) continue;
                return fail_to_watch(loop, all[i], {wrong.code(), wrong.what()});
            }
        }
        if (rounds.is_over()) return end_everywhere(loop, all);
    }
}

/// Checks once whether the loop is still being watched; after too many checks without, the part
/// fails.
bool exchange::is_watched(shared_loop& loop, clock::duration pause) {
    const bool is_ours = here_ == seat{loop.groups.front(), 0};
    if (is_ours || part_.loop(loop.number).is_over() || !part_.has_started() || loop.asked) {
        loop.asked = false;
        loop.looks_in_vain = 0;
        return true;
    }
    // A round takes as long as its slowest answer. At first, processes may still be waiting to
    // join.
    constexpr clock::duration year = std::chrono::hours(24 * 365);
    const clock::duration longest =
        loop.ever_asked ? std::max<clock::duration>(options_.silence_limit, 5 * loop_patience)
                        : 2 * std::min<clock::duration>(options_.join_limit, year);
    if (++loop.looks_in_vain * pause < longest) return true;
    part_.fail({{{errc::disconnected},
                 fmt::format("group {} has not checked for {} s whether a loop has ended, expected "
                             "its first process to detect it",
                             label({loop.groups.front(), 0}),
                             std::chrono::duration<double>(longest).count())},
                true});
    return false;
}

void exchange::fail_to_watch(const shared_loop& loop, const std::string& address,
                             const failure& why) {
    part_.fail(
        {{why.what,
          fmt::format(
              "cannot ask the process at {} whether its part of a loop has ended ({}), expected "
              "the first process of group {} to reach every process with a part of the loop",
              address, why.sentence, graph_.group_names()[loop.groups.front()])}});
}

void exchange::end_everywhere(const shared_loop& loop, const std::vector<std::string>& all) {
    auto over = over_.procedure<wire::loop_over_signature>(wire::loop_over);
    const auto tell = [&](const std::string& address) -> result<void> {
        try {
            return over.on(address).within(loop_patience).try_call(loop.number);
        } catch (const error& wrong) {
            return {wrong.code().code, wrong.what()};
        }
    };
    for (const std::string& address : all) {
        for (;;) {
            const result<void> told = tell(address);
            // Its channels may have ended first, and it has left. If it is lost instead, its direct
            // companions report that.
            if (told || has_left(told.code())) break;
            if (told.code() == errc::timed_out && !over_here_.is_set()) continue;
            part_.fail({{told.code(),
                         fmt::format("cannot tell the process at {} that a loop has ended ({})",
                                     address, told.sentence())},
                        true});
            break;
        }
    }
}

}  // namespace amalgam::detail
