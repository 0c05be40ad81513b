#include "directory/queries/broadcast_queries.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/limits.hpp"
#include "directory/membership/tree_call.hpp"

namespace amalgam::detail {

namespace {

// The part of the ring that contains only that server.
ring_part only(std::uint64_t key) {
    return {key - 1, 1, 2};
}
}  // namespace

broadcast_queries::broadcast_queries(ring_runtime& runtime, membership_view& view,
                                     ring_peers& peers)
    : runtime_(runtime),
      view_(view),
      peers_(peers),
      answer_(runtime.on.procedure<in_ring::answer>(in_ring::answer_name)),
      search_(runtime.on.procedure<in_ring::search>(in_ring::search_name)),
      packets_dropped_(runtime.on.counters().get("directory.packets_dropped")) {}

void broadcast_queries::start() {
    runtime_.serve(*this, in_ring::answer_name, &broadcast_queries::answered);
}

void broadcast_queries::hear(broadcast_packet&& asked) {
    if (hearing_.fetch_add(1) >= limits::max_broadcasts_heard) {
        hearing_.fetch_sub(1);
        return packets_dropped_.add();
    }
    runtime_.run([this, asked = std::move(asked)] {
        answer(asked);
        hearing_.fetch_sub(1);
    });
}

void broadcast_queries::answer(const broadcast_packet& asked) {
    if (!view_.knows(asked.from)) return;  // Strangers are met first.
    const auto here = runtime_.here.lock();
    if (here == nullptr) return;
    std::optional<peer> there;
    try {
        there = peers_.reach(asked.from);
        if (!there) return;
        // Another member may have used that key: to have us search, or flood whose key it is.
        runtime_.lets_in->check_signed(asked.signer, *there, runtime_.options.answer_limit);
    } catch (const error& why) {
        return log(log_level::info, "directory", "cannot answer a broadcast query",
                   {{"key", asked.from}, {"why", why.what()}});
    }
    first_answer mine;
    if (asked.what == broadcast_packet::kind::find) {
        mine.found = here->find_here(asked.query);
        if (mine.found.id == resource_id::none) return;
    } else if (auto first = here->search_here(asked.query)) {
        mine = std::move(*first);
    }
    mine.server = view_.key();
    try {
        answer_.on(*there).post(asked.number, mine);
    } catch (const error& why) {
        log(log_level::debug, "directory", "cannot answer a broadcast query",
            {{"key", asked.from}, {"why", why.what()}});
    }
}

void broadcast_queries::answered(std::uint64_t number, first_answer answer) {
    const std::lock_guard one(lock_);
    const auto at = questions_.find(number);
    if (at == questions_.end()) return;  // Too late.
    question& asked = *at->second;
    const auto known = std::lower_bound(asked.silent.begin(), asked.silent.end(), answer.server);
    if (known == asked.silent.end() || *known != answer.server) return;
    asked.silent.erase(known);
    if (answer.found.id != resource_id::none) asked.answers.push_back(std::move(answer));
    if (!asked.all || asked.silent.empty()) asked.enough.set();
}

bool broadcast_queries::may_ask() {
    const ring_options& options = runtime_.options;
    if (!options.medium || options.search == search_way::by_tree || view_.size() == 1) return false;
    const std::lock_guard one(lock_);
    return runtime_.now() >= rests_until_;
}

std::optional<std::vector<first_answer>> broadcast_queries::ask(
    broadcast_packet::kind what, const attribute_view& query, std::vector<std::uint64_t>& silent) {
    if (!may_ask()) return std::nullopt;
    broadcast_medium& medium = *runtime_.options.medium;
    broadcast_packet packet;
    packet.what = what;
    packet.from = view_.key();
    packet.query = attribute_list(query);
    packet.number = runtime_.random();
    const auto asked = std::make_shared<question>();
    asked->all = what == broadcast_packet::kind::search;
    asked->silent = view_.keys();
    {
        const std::lock_guard one(lock_);
        questions_.emplace(packet.number, asked);
    }
    const std::vector<std::byte> bytes = to_bytes(packet);
    const bool fits = bytes.size() <= medium.max_bytes();
    const bool sent = fits && medium.send(bytes);
    if (sent) (void)asked->enough.wait_for(runtime_.options.broadcast_wait);
    {
        const std::lock_guard one(lock_);
        questions_.erase(packet.number);
    }
    if (fits && !sent) rest();
    if (!sent) return std::nullopt;
    silent = std::move(asked->silent);
    return std::move(asked->answers);
}

std::optional<found_values> broadcast_queries::find(const attribute_view& query) {
    std::vector<std::uint64_t> silent;
    auto heard = ask(broadcast_packet::kind::find, query, silent);
    if (!heard) return std::nullopt;
    return heard->empty() ? found_values{} : std::move(heard->front().found);
}

std::optional<std::uint32_t> broadcast_queries::search(const attribute_view& query,
                                                       const taker& take) {
    if (view_.size() > limits::max_servers_searched) return std::nullopt;
    std::vector<std::uint64_t> silent;
    auto heard = ask(broadcast_packet::kind::search, query, silent);
    if (!heard) return std::nullopt;
    take(std::move(*heard));
    std::vector<delegation> unheard;
    for (const std::uint64_t each : silent)
        unheard.push_back({only(each), each});
    tree_call parts(runtime_, view_, peers_, unheard, runtime_.time_left(),
                    [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                        return search_.on(there).within(within).start(its, query);
                    });
    bool missed = false;
    while (auto more = parts.next()) {
        missed = true;
        take(std::move(more->found));
    }
    note(missed);
    return parts.silent();
}

void broadcast_queries::note(bool missed) {
    {
        const std::lock_guard one(lock_);
        missed_ = missed ? missed_ + 1 : 0;
        if (missed_ < limits::max_broadcast_misses) return;
        missed_ = 0;
    }
    rest();
}

void broadcast_queries::rest() {
    log(log_level::info, "directory",
        "broadcasts do not reach the other directories; asking them by trees");
    const std::lock_guard one(lock_);
    rests_until_ = runtime_.now() + limits::broadcast_rest_periods * runtime_.options.period;
}

}  // namespace amalgam::detail
