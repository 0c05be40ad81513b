#include "directory/membership/discovery.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/limits.hpp"
#include "directory/membership/peers.hpp"

namespace amalgam::detail {

discovery::discovery(ring_runtime& runtime, membership_view& view, joining& joins)
    : runtime_(runtime),
      view_(view),
      joining_(joins),
      meet_(runtime.on.procedure<in_ring::meet>(in_ring::meet_name)) {}

void discovery::start() {
    runtime_.serve(*this, in_ring::meet_name, &discovery::met);
}

void discovery::start_announcing() {
    runtime_.run([this] { announce(); });
}

void discovery::announce() {
    const ring_options& options = runtime_.options;
    broadcast_packet packet;
    packet.from = view_.key();
    packet.addresses = view_.self().addresses;
    std::erase_if(packet.addresses, is_local);
    std::size_t servers = 0;
    do {
        servers = view_.size();
        packet.number = servers;
        std::vector<std::byte> bytes = to_bytes(packet);
        while (bytes.size() > options.medium->max_bytes() && packet.addresses.size() > 1) {
            packet.addresses.pop_back();
            bytes = to_bytes(packet);
        }
        (void)options.medium->send(bytes);
    } while (!runtime_.stopping.wait_for(
        options.period * std::max<std::size_t>(1, servers / limits::max_announcers)));
}

void discovery::hear(broadcast_packet&& stranger) {
    if (is_to_be_met(stranger))
        runtime_.run([this, stranger = std::move(stranger)] { meet(stranger); });
}

// The first server of the ring invites a stranger that knows no more servers than it does: so news
// of simultaneous arrivals spreads together. If that fails, any server does.
bool discovery::is_to_be_met(const broadcast_packet& stranger) {
    bool known = false, is_first = false;
    std::size_t servers = 0;
    view_.locked([&](const member& self, const member_table& others) {
        known = others.find(stranger.from) != nullptr;
        is_first = others.size() == 0 || self.key < others.keys().front();
        servers = others.size() + 1;
    });
    const std::lock_guard one(lock_);
    if (known) {
        strangers_.erase(stranger.from);
        return false;
    }
    if (strangers_.size() == limits::max_unknown_servers) strangers_.clear();
    const unsigned heard = ++strangers_[stranger.from];
    const bool knows_more =
        stranger.number != servers ? stranger.number > servers : stranger.from < view_.key();
    if ((!is_first || knows_more) && heard <= limits::rounds_left_to_others) return false;
    // A server that is alone meets one stranger at a time, unless that keeps others waiting.
    if (meeting_ >=
        (servers == 1 && heard <= limits::rounds_left_to_others ? 1 : limits::max_meetings))
        return false;
    ++meeting_;
    return true;
}

void discovery::meet(const broadcast_packet& stranger) {
    const clock::time_point until = runtime_.now() + runtime_.options.answer_limit;
    for (const std::string& each : stranger.addresses) {
        if (runtime_.now() >= until || runtime_.stopping.is_set()) break;
        const result<peer> there = runtime_.on.try_lookup(each);
        if (!there || there->is_self()) continue;
        try {
            runtime_.lets_in->check_is(directory_role::member, *there, until - runtime_.now());
            // Else a member could make others meet at addresses that it picks.
            runtime_.lets_in->check_signed(stranger.signer, *there, until - runtime_.now());
            meet_.on(*there).within(until - runtime_.now())(view_.self().addresses);
            break;
        } catch (const error& why) {
            log(log_level::info, "directory", "cannot reach a server that was heard",
                {{"address", each}, {"why", why.what()}});
        }
    }
    const std::lock_guard one(lock_);
    --meeting_;
}

void discovery::met(std::vector<std::string> addresses) {
    std::erase_if(addresses, is_local);
    if (addresses.size() > limits::max_addresses) addresses.resize(limits::max_addresses);
    runtime_.run_for_others([this, addresses = std::move(addresses)] {
        for (const std::string& each : addresses) {
            if (view_.has_address(each)) return;
            try {
                return joining_.join(each);
            } catch (const error& why) {
                log(log_level::info, "directory", "cannot join a server that asked for it",
                    {{"address", each}, {"why", why.what()}});
            }
        }
    });
}

}  // namespace amalgam::detail
