#include "flow/channel/exchange.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <amalgam/rpc/call_context.hpp>
#include <amalgam/tasks/ult.hpp>

#include "flow/channel/wire.hpp"
#include "flow/graph/reach.hpp"

namespace amalgam::detail {
namespace {

template <typename Map>
auto& edge_of(Map& edges, std::uint32_t edge) {
    auto found = edges.find(edge);
    if (found == edges.end())
        throw error(errc::invalid, fmt::format("edge {} does not lead to this process", edge));
    return found->second;
}

}  // namespace

exchange::exchange(graph_core& graph, const flow_config& config, seat here, engine& over,
                   part& nodes, const run_options& options)
    : graph_(graph), config_(config), here_(here), over_(over), part_(nodes), options_(options) {
    derive_loops();
    derive_channels();
    part_.on_failure([this] {
        for (auto& [edge, out] : out_)
            for (auto& channel : out.channels)
                channel->stop();
        for (auto& [edge, in] : in_)
            in.channel->stop();
        std::unique_lock hold(lock_);
        joined_.notify_all();
    });
    serve();
}

void exchange::derive_channels() {
    auto add_companions = [this](std::size_t group, bool sends_to_us) {
        for (std::size_t i = 0; i < replicas_of(group); ++i) {
            seat who{group, i};
            bool known = std::any_of(companions_.begin(), companions_.end(), [&](const auto& one) {
                return one->who == who && one->sends_to_us == sends_to_us;
            });
            if (known) continue;
            auto one = std::make_unique<companion>();
            one->who = who;
            one->label = label(who);
            one->sends_to_us = sends_to_us;
            companions_.push_back(std::move(one));
        }
    };
    for (std::size_t i = 0; i < graph_.edges().size(); ++i) {
        const graph_edge& edge = graph_.edges()[i];
        std::size_t from = graph_.nodes()[edge.from].groups.front();
        std::size_t to = graph_.nodes()[edge.to].groups.front();
        if (from == to) continue;
        if (from == here_.group) {
            add_companions(to, false);
            add_out(i, to);
        } else if (to == here_.group) {
            add_companions(from, true);
            // On-demand senders get credit for each consumed batch.
            const bool on_demand = edge.is_on_demand();
            auto made = std::make_unique<receiver>(
                replicas_of(from),
                receiver::limits{.window_bytes = options_.window_bytes,
                                 .hungry_items = on_demand ? edge.routing->queue_items : 1,
                                 .tells_at_once = on_demand},
                edge.back);
            part_.attach(i, static_cast<channel_in&>(*made));
            in_.emplace(i, in_edge{from, std::move(made), loop_of_way_back(i)});
        }
    }
}

void exchange::add_out(std::size_t edge, std::size_t to_group) {
    const graph_edge& about = graph_.edges()[edge];
    const bool chosen = about.routing != nullptr && !about.is_on_demand();
    const std::size_t receivers = replicas_of(to_group);
    out_edge made{to_group, {}};
    for (std::size_t i = 0; i < (chosen ? receivers : 1); ++i) {
        auto lost = [this, to_group, i](std::size_t receiver, const failure& why) {
            lose_after_last_words(find({to_group, i + receiver}, false), why);
        };
        made.channels.push_back(std::make_unique<sender>(
            over_, static_cast<std::uint32_t>(edge), static_cast<std::uint32_t>(here_.replica),
            chosen ? 1 : receivers,
            channel_limits{options_.batch_bytes, options_.window_bytes,
                           about.is_on_demand() ? about.routing->queue_items : 1},
            lost));
        part_.attach(edge, static_cast<channel_out&>(*made.channels.back()));
    }
    out_.emplace(edge, std::move(made));
}

std::size_t exchange::replicas_of(std::size_t group) const {
    return config_.find(graph_.group_names()[group])->replicas();
}

void exchange::serve() {
    over_.define(library_name{wire::stay}, [this] { return serve_stay(); });
    over_.define(library_name{wire::batch},
                 [this](std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                        std::uint32_t items, std::span<const std::byte> bytes) {
                     take_batch(edge, replica, number, {bytes, items});
                 });
    over_.define(library_name{wire::end},
                 [this](std::uint32_t edge, std::uint32_t replica, std::uint64_t batches,
                        std::uint64_t items) { return take_end(edge, replica, batches, items); });
    over_.define(library_name{wire::credit},
                 [this](std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                        std::uint64_t items) { take_credit(edge, replica, bytes, items); });
    const auto loop_of = [this](std::uint32_t number) -> loop_count& {
        if (number >= graph_.loops())
            throw error(errc::invalid, fmt::format("there is no loop {}", number));
        return part_.loop(number);
    };
    over_.define(library_name{wire::loop_counts}, [this, loop_of](std::uint32_t number) {
        std::vector<std::uint64_t> counts;
        const loop_count& of = loop_of(number);
        for (shared_loop& each : loops_)
            if (each.number == number) each.asked = each.ever_asked = true;
        if (part_.has_started()) counts = {of.added(), of.taken()};
        return counts;
    });
    over_.define(library_name{wire::loop_over},
                 [loop_of](std::uint32_t number) { loop_of(number).end(); });
    // Last: a process that has joined calls the others.
    over_.define(library_name{wire::join},
                 [this](std::string graph, std::uint32_t group, std::uint32_t replica) {
                     take_join(graph, {group, replica});
                 });
}

void exchange::take_join(const std::string& graph, seat who) {
    if (graph != graph_.fingerprint())
        throw error(errc::mismatch,
                    fmt::format("it built a different graph than group {}, expected the same "
                                "nodes, pipelines and groups in every process",
                                label(here_)));
    companion& one = find(who, true);
    {
        std::unique_lock hold(lock_);
        if (closed_) throw error(errc::closed, "the run has ended");
        const peer from = call_context::current().from();
        if (std::exchange(one.joined, true)) {
            if (one.at == from) return;  // A retry after a lost answer.
            throw error(errc::denied, fmt::format("group {} has already joined group {} from {}, "
                                                  "expected only one process of that name",
                                                  one.label, label(here_), one.at.address()));
        }
        one.at = from;
        joined_.notify_all();
    }
    watch(one);
}

void exchange::take_batch(std::uint32_t edge, std::uint32_t replica, std::uint64_t number,
                          channel_in::batch what) {
    const in_edge& in = edge_of(in_, edge);
    const companion& from = caller({in.from_group, replica}, true);
    // The loop has ended, so nobody would take the item: a premature end must not lose it silently.
    if (in.back_in != nullptr && in.back_in->is_over())
        part_.fail({{{errc::mismatch},
                     fmt::format("group {} sent an item back into a loop that has already ended, "
                                 "expected every group to count the items in it",
                                 from.label)}});
    receiver::consumed so_far;
    try {
        if (!in.channel->deliver(replica, number, what, so_far)) return;
    } catch (const error& wrong) {
        blame(from, wrong);
        throw;
    }
    over_.procedure<wire::credit_signature>(wire::credit)
        .on(from.at)
        .post(edge, static_cast<std::uint32_t>(here_.replica), so_far.bytes, so_far.items);
}

void exchange::take_credit(std::uint32_t edge, std::uint32_t replica, std::uint64_t bytes,
                           std::uint64_t items) {
    const out_edge& out = edge_of(out_, edge);
    (void)caller({out.to_group, replica}, false);
    out.to(replica).credit(out.number(replica), bytes, items);
}

/// That companion, if it is the caller: others must not speak for it.
/// Failure: throws error{denied}.
const exchange::companion& exchange::caller(seat who, bool sends_to_us) const {
    const companion& one = find(who, sends_to_us);
    if (one.at == call_context::current().from()) return one;
    throw error(
        errc::denied,
        fmt::format(
            "this is not group {}, which has not joined yet or has joined from another address",
            one.label));
}

/// It sent something impossible, so nothing else from it can be trusted.
void exchange::blame(const companion& one, const error& wrong) {
    if (wrong.code() != errc::invalid) return;  // Just the end of the run here.
    part_.fail({{{errc::mismatch},
                 fmt::format("group {} violated the protocol: {}", one.label, wrong.what())},
                true});
}

std::string exchange::serve_stay() {
    over_here_.wait();
    auto failed = part_.failed();
    return failed ? failed->what.sentence : "";
}

std::string exchange::take_end(std::uint32_t edge, std::uint32_t replica, std::uint64_t batches,
                               std::uint64_t items) {
    const in_edge& in = edge_of(in_, edge);
    const companion& from = caller({in.from_group, replica}, true);
    try {
        in.channel->finish(replica, batches, items);
        return {};
    } catch (const error& wrong) {
        blame(from, wrong);
        auto failed = part_.failed();
        if (!failed) throw;
        return failed->what.sentence;
    }
}

bool exchange::join_all(const address_book& addresses) {
    auto deadline = over_.now() + options_.join_limit;
    for (auto& one : companions_) {
        if (one->sends_to_us || part_.failed()) continue;
        join(*one, addresses[one->who.group][one->who.replica], deadline);
    }
    return !part_.failed();
}

void exchange::join(companion& one, const std::string& address, clock::time_point deadline) {
    auto join = over_.procedure<wire::join_signature>(wire::join);
    const auto ask = [&](const peer& who, std::chrono::nanoseconds patience) {
        return join.on(who).within(patience).try_call(graph_.fingerprint(),
                                                      static_cast<std::uint32_t>(here_.group),
                                                      static_cast<std::uint32_t>(here_.replica));
    };
    const result<peer> found =
        reach(over_, address, deadline, ask, [this] { return part_.failed().has_value(); });
    if (!found) return fail_to_join(one, address, found.why());
    one.at = *found;
    for (auto& [edge, out] : out_)
        if (out.to_group == one.who.group)
            out.to(one.who.replica).connect(out.number(one.who.replica), one.at);
    watch(one);
}

void exchange::fail_to_join(const companion& one, const std::string& address, const failure& why) {
    auto limit = std::chrono::duration<double>(options_.join_limit).count();
    part_.fail(
        {{why.what,
          may_come(why.what.code)
              ? fmt::format(
                    "group {} did not answer at {} within {} s ({}), expected it to be running",
                    one.label, address, limit, why.sentence)
              : fmt::format("group {} at {} cannot be joined: {}", one.label, address,
                            why.sentence)},
         true});
}

void exchange::expect_senders(clock::time_point deadline) {
    std::unique_lock hold(lock_);
    for (auto& one : companions_) {
        if (!one->sends_to_us) continue;
        auto done = [&] { return one->joined || closed_ || part_.failed(); };
        if (joined_.wait_until(hold, deadline, done)) continue;
        auto limit = std::chrono::duration<double>(options_.join_limit).count();
        hold.unlock();
        part_.fail({{{errc::timed_out},
                     fmt::format("group {} did not join within {} s, expected it to be running",
                                 one->label, limit)},
                    true});
        return;
    }
}

void exchange::watch(companion& one) {
    // In its own ULT: started while serving a join, it would inherit that join's deadline.
    amalgam::spawn(over_.stream(), [this, &one] {
        one.stay = over_.procedure<wire::stay_signature>(wire::stay).on(one.at).start();
        one.watched = true;
    }).join();
    one.watcher = amalgam::spawn(over_.stream(), [this, &one] {
        (void)one.stay.wait();  // answer.get() tells how it ended.
        future<std::string> answer;
        {
            std::unique_lock hold(lock_);
            answer = std::move(one.stay);
        }
        try {
            one.last_words.sentence = answer.get();
            if (!one.last_words.sentence.empty()) one.last_words.what = {errc::handler_failed};
        } catch (const error& wrong) {
            one.last_words = {wrong.code(), wrong.what()};
        }
        if (one.last_words.what.ok() && exchanges_with(one))
            one.last_words = {{errc::disconnected},
                              "it reported the end of its run before all items were exchanged"};
        if (!one.last_words.what.ok() && exchanges_with(one)) lose(one, one.last_words);
        one.gone.set();
    });
}

bool exchange::exchanges_with(const companion& one) const {
    if (one.sends_to_us)
        return std::any_of(in_.begin(), in_.end(), [&](const auto& in) {
            return in.second.from_group == one.who.group &&
                   in.second.channel->is_open(one.who.replica);
        });
    return std::any_of(out_.begin(), out_.end(), [&](const auto& out) {
        const std::size_t who = one.who.replica;
        return out.second.to_group == one.who.group &&
               out.second.to(who).is_open(out.second.number(who));
    });
}

/// Whether this run depends on that process.
bool exchange::is_needed(const companion& one) const {
    if (exchanges_with(one)) return true;
    return !one.sends_to_us && std::any_of(out_.begin(), out_.end(), [&](const auto& out) {
        const std::size_t who = one.who.replica;
        return out.second.to_group == one.who.group &&
               !out.second.to(who).has_ended(out.second.number(who));
    });
}

void exchange::feel_pulses() {
    if (options_.silence_limit.count() == 0) return;
    constexpr unsigned looks = 4;
    const clock::duration pause = clock::duration(options_.silence_limit) / looks;
    auto ping = over_.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping");
    while (!over_here_.wait_for(pause)) {
        for (shared_loop& loop : loops_)
            if (!is_watched(loop, pause)) return;
        for (auto& one : companions_) {
            if (!one->watched || one->gone.is_set()) continue;
            if (one->pulse.valid() && !one->pulse.ready()) {
                // Counts checks, not time: a process that was suspended itself blames nobody for
                // checks it did not make.
                if (++one->looks_in_vain < looks) continue;
                if (is_needed(*one)) {
                    const std::chrono::duration<double> limit = options_.silence_limit;
                    lose(*one, {{errc::disconnected},
                                fmt::format("it has not answered for {} s", limit.count())});
                    return;
                }
            }
            one->looks_in_vain = 0;
            one->pulse = ping.on(one->at).start(0);
        }
    }
}

void exchange::lose(const companion& one, const failure& why) {
    constexpr std::size_t most_words = 4096;
    bool it_failed = why.what == errc::handler_failed;  // It said so before it ended.
    part_.fail({{why.what, it_failed ? fmt::format("group {} failed: {}", one.label,
                                                   why.sentence.substr(0, most_words))
                                     : fmt::format("lost contact with group {} ({})", one.label,
                                                   why.sentence)},
                true});
}

void exchange::lose_after_last_words(companion& one, const failure& why) {
    // A failing process answers `stay` and refuses other calls, in either order.
    bool said =
        one.gone.wait_for(std::chrono::seconds(1)) && one.last_words.what == errc::handler_failed;
    lose(one, said ? one.last_words : why);
}

void exchange::close() {
    {
        std::unique_lock hold(lock_);
        closed_ = true;
        joined_.notify_all();
        for (auto& one : companions_)
            if (one->stay.valid()) one->stay.cancel();
    }
    over_here_.set();  // Ends the loop watchers and feel_pulses().
    for (shared_loop& loop : loops_)
        if (loop.watcher.joinable()) loop.watcher.join();
    for (auto& one : companions_)
        if (one->watcher.joinable()) one->watcher.join();
}

exchange::companion& exchange::find(seat who, bool sends_to_us) const {
    for (auto& one : companions_)
        if (one->who == who && one->sends_to_us == sends_to_us) return *one;
    throw error(errc::invalid, fmt::format("group {} replica {} does not send to this process",
                                           who.group, who.replica));
}

std::string exchange::label(seat who) const {
    return process_label(*config_.find(graph_.group_names()[who.group]), who.replica);
}

}  // namespace amalgam::detail
