#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/membership/asking.hpp"

namespace amalgam::detail {

namespace {
constexpr std::size_t announcers_at_once = 64;     // Per period, over all servers.
constexpr std::size_t most_servers_searched = 64;  // By broadcast, where every server answers.
constexpr unsigned patience = 3;                   // Times a stranger is left to others.
constexpr unsigned most_met_at_once = 64;
constexpr unsigned misses_taken = 3;
constexpr int rest_periods = 30;
constexpr int most_heard_at_once = 256;
constexpr std::size_t most_strangers = 1024;

// The part of the ring that contains only that server.
ring_part only(std::uint64_t key) {
    return {key - 1, 1, 2};
}
}  // namespace

void directory_ring::listen() {
    if (!options_.medium) return;
    check_can_be_reached();
    options_.medium->listen([self = weak_from_this()](const_bytes bytes) {
        if (const auto me = self.lock()) me->take_packet(bytes);
    });
    run([](directory_ring& me) { me.keep_announcing(); });
}

void directory_ring::keep_announcing() {
    broadcast_packet packet;
    packet.from = self_key();
    packet.addresses = self().addresses;
    std::erase_if(packet.addresses, is_local);
    std::size_t servers = 0;
    do {
        servers = size();
        packet.number = servers;
        std::vector<std::byte> bytes = to_bytes(packet, *gate_);
        while (bytes.size() > options_.medium->max_bytes() && packet.addresses.size() > 1) {
            packet.addresses.pop_back();
            bytes = to_bytes(packet, *gate_);
        }
        (void)options_.medium->send(bytes);
    } while (!stopping_.wait_for(options_.period *
                                 std::max<std::size_t>(1, servers / announcers_at_once)));
}

// On the medium's thread. Most packets are old news, and start no ULT.
void directory_ring::take_packet(const_bytes bytes) noexcept {
    try {
        auto packet = parse_packet(bytes, *gate_);
        if (!packet) return packets_refused_.add();
        const bool is_here = packet->what == broadcast_packet::kind::here;
        if (packet->from == self_key()) return;
        if (is_here) {
            if (is_to_be_met(*packet))
                run([packet = std::move(*packet)](directory_ring& me) { me.meet(packet); });
            return;
        }
        if (hearing_.fetch_add(1) >= most_heard_at_once) {
            hearing_.fetch_sub(1);
            return packets_dropped_.add();
        }
        run([packet = std::move(*packet)](directory_ring& me) {
            me.answer(packet);
            me.hearing_.fetch_sub(1);
        });
    } catch (const std::exception&) {
        packets_dropped_.add();  // Out of memory.
    }
}

// ---- discovery

// The first server of the ring invites a stranger that knows no more servers than it does: so news
// of simultaneous arrivals spreads together. If that fails, any server does.
bool directory_ring::is_to_be_met(const broadcast_packet& stranger) {
    const std::lock_guard one(lock_);
    if (others_.find(stranger.from) != nullptr) {
        strangers_.erase(stranger.from);
        return false;
    }
    if (strangers_.size() == most_strangers) strangers_.clear();
    const unsigned heard = ++strangers_[stranger.from];
    const bool is_first = others_.size() == 0 || self_.key < others_.keys().front();
    const std::size_t servers = others_.size() + 1;
    const bool knows_more =
        stranger.number != servers ? stranger.number > servers : stranger.from < self_.key;
    if ((!is_first || knows_more) && heard <= patience) return false;
    // A server that is alone meets one stranger at a time, unless that keeps others waiting.
    if (meeting_ >= (servers == 1 && heard <= patience ? 1 : most_met_at_once)) return false;
    ++meeting_;
    return true;
}

void directory_ring::meet(const broadcast_packet& stranger) {
    const clock::time_point until = on_.now() + options_.answer_limit;
    for (const std::string& each : stranger.addresses) {
        if (on_.now() >= until || stopping_.is_set()) break;
        const result<peer> there = on_.try_lookup(each);
        if (!there || there->is_self()) continue;
        try {
            gate_->enter(*there, gate_role, until - on_.now());
            meet_.on(*there).within(until - on_.now())(self().addresses);
            break;
        } catch (const error& why) {
            log(log_level::info, "directory", "cannot reach a server that was heard",
                {{"address", each}, {"why", why.what()}});
        }
    }
    const std::lock_guard one(lock_);
    --meeting_;
}

void directory_ring::met(std::vector<std::string> addresses) {
    std::erase_if(addresses, is_local);
    if (addresses.size() > most_addresses) addresses.resize(most_addresses);
    run_for_others([addresses = std::move(addresses)](directory_ring& me) {
        for (const std::string& each : addresses) {
            {
                const std::lock_guard one(me.lock_);
                if (me.others_.has_address(each)) return;
            }
            try {
                return me.join_by(each);
            } catch (const error& why) {
                log(log_level::info, "directory", "cannot join a server that asked for it",
                    {{"address", each}, {"why", why.what()}});
            }
        }
    });
}

// ---- queries

void directory_ring::answer(const broadcast_packet& asked) {
    {
        const std::lock_guard one(lock_);
        if (others_.find(asked.from) == nullptr) return;  // Strangers are met first.
    }
    const auto here = here_.lock();
    if (here == nullptr) return;
    first_answer mine;
    if (asked.what == broadcast_packet::kind::find) {
        mine.found = here->find_here(asked.query);
        if (mine.found.id == resource_id::none) return;
    } else if (auto first = here->search_here(asked.query)) {
        mine = std::move(*first);
    }
    mine.server = self_key();
    try {
        if (const auto there = reach(asked.from)) answer_.on(*there).post(asked.number, mine);
    } catch (const error& why) {
        log(log_level::debug, "directory", "cannot answer a broadcast query",
            {{"key", asked.from}, {"why", why.what()}});
    }
}

void directory_ring::answered_by(std::uint64_t number, first_answer answer) {
    const std::lock_guard one(lock_);
    const auto at = questions_.find(number);
    if (at == questions_.end()) return;  // Too late.
    open_question& question = *at->second;
    const auto known =
        std::lower_bound(question.silent.begin(), question.silent.end(), answer.server);
    if (known == question.silent.end() || *known != answer.server) return;
    question.silent.erase(known);
    if (answer.found.id != resource_id::none) question.answers.push_back(std::move(answer));
    if (!question.all || question.silent.empty()) question.enough.set();
}

bool directory_ring::may_broadcast() const {
    if (!options_.medium || options_.search == search_way::tree) return false;
    const std::lock_guard one(lock_);
    return others_.size() > 0 && on_.now() >= rests_until_;
}

std::optional<std::vector<first_answer>> directory_ring::ask_at_once(
    broadcast_packet::kind what, const attribute_view& query, std::vector<std::uint64_t>& silent) {
    if (!may_broadcast()) return std::nullopt;
    broadcast_packet packet;
    packet.what = what;
    packet.from = self_key();
    packet.query = attribute_list(query);
    const auto question = std::make_shared<open_question>();
    question->all = what == broadcast_packet::kind::search;
    {
        const std::lock_guard one(lock_);
        packet.number = chance_();
        question->silent = others_.keys();
        questions_.emplace(packet.number, question);
    }
    const std::vector<std::byte> bytes = to_bytes(packet, *gate_);
    const bool fits = bytes.size() <= options_.medium->max_bytes();
    const bool sent = fits && options_.medium->send(bytes);
    if (sent) (void)question->enough.wait_for(options_.broadcast_wait);
    {
        const std::lock_guard one(lock_);
        questions_.erase(packet.number);
    }
    if (fits && !sent) rest_from_broadcasts();
    if (!sent) return std::nullopt;
    silent = std::move(question->silent);
    return std::move(question->answers);
}

std::optional<std::uint32_t> directory_ring::search_by_broadcast(const attribute_view& query,
                                                                 const taker& take) {
    if (size() > most_servers_searched) return std::nullopt;
    std::vector<std::uint64_t> silent;
    auto heard = ask_at_once(broadcast_packet::kind::search, query, silent);
    if (!heard) return std::nullopt;
    take(std::move(*heard));
    std::vector<delegation> rest;
    for (const std::uint64_t each : silent)
        rest.push_back({only(each), each});
    asking parts(*this, rest, left(),
                 [&](const peer& there, const ring_part& its, std::chrono::nanoseconds within) {
                     return search_.on(there).within(within).start(its, query);
                 });
    bool missed = false;
    while (auto answer = parts.next()) {
        missed = true;
        take(std::move(answer->found));
    }
    note_broadcast(missed);
    return parts.silent();
}

void directory_ring::note_broadcast(bool missed) {
    {
        const std::lock_guard one(lock_);
        missed_ = missed ? missed_ + 1 : 0;
        if (missed_ < misses_taken) return;
        missed_ = 0;
    }
    rest_from_broadcasts();
}

void directory_ring::rest_from_broadcasts() {
    log(log_level::info, "directory",
        "broadcasts do not reach the other directories; asking them by trees");
    const std::lock_guard one(lock_);
    rests_until_ = on_.now() + rest_periods * options_.period;
}

}  // namespace amalgam::detail
