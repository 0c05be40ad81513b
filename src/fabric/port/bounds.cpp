// Memory that a port holds for peers, and the limits on it.
#include <utility>

#include <amalgam/core/limited_log.hpp>

#include "fabric/port/framed_port.hpp"

namespace amalgam::detail {
namespace {

// A port that has held less than this has nothing worth returning.
constexpr std::size_t much_bytes = std::size_t{1} << 20;

std::size_t held_for(const peer_record& peer) noexcept {
    return peer.queued_bytes + peer.placement.owned.size();
}

/// Avoids sums, which would overflow for a limit of SIZE_MAX.
bool is_far_past(std::size_t limit, std::size_t longest, std::size_t held) noexcept {
    return held > limit && held - limit > longest;
}

}  // namespace

port_usage framed_port::usage() const noexcept {
    return {queued_bytes_.value(), buffers_.counts().idle_bytes, evicted_.value()};
}

transfer_counts framed_port::transfers() const noexcept {
    return {direct_.value(), direct_bytes_.value(), target_.served(), copied_bytes()};
}

peer_traffic framed_port::traffic_with(peer_id who) const noexcept {
    const peer_record* const peer = peers_.find(who);
    if (peer == nullptr) return {};
    peer_traffic all = peer->traffic;
    if (peer->up()) peer->link->add_traffic(all);
    return all;
}

peer_traffic framed_port::traffic() const noexcept {
    peer_traffic all = ended_traffic_;
    peers_.for_each([&](const peer_record& peer) {
        all += peer.traffic;
        if (peer.up()) peer.link->add_traffic(all);
    });
    return all;
}

void framed_port::queue_more(peer_record& peer, std::size_t bytes) noexcept {
    peer.queued_bytes += bytes;
    queued_bytes_.add(bytes);
    if (queued_bytes_.value() > much_bytes) has_used_much_ = true;
    if (is_far_past(options_.max_queued_bytes_total, can_.max_message_bytes, queued_bytes_.value()))
        evict_largest();
}

void framed_port::queue_less(std::size_t bytes) noexcept {
    queued_bytes_.subtract(bytes);
    if (some_wait_for_all_ && queued_bytes_.value() <= options_.max_queued_bytes_total / 2) {
        some_wait_for_all_ = false;
        peers_.for_each([&](peer_record& peer) { resume_if_room(peer); });
    }
    if (has_used_much_ && queued_bytes_.value() == 0) give_memory_back();
}

void framed_port::discard(early_message& one) noexcept {
    if (one.is_down) return;  // Part of its peer's record.
    const std::size_t bytes = weight(one);
    early_.give_back(one);
    queue_less(bytes);
}

/// Reserves memory for a placement. False: the peer was ended; only possible if placements grow.
bool framed_port::take_room(peer_record& peer, std::size_t bytes) noexcept {
    queued_bytes_.add(bytes);
    if (queued_bytes_.value() > much_bytes) has_used_much_ = true;
    if (placement_step_ != ~std::size_t{0} &&
        is_far_past(options_.max_queued_bytes_total, can_.max_message_bytes, queued_bytes_.value()))
        evict_largest();
    return peer.up();
}

/// The placement is complete: its buffer becomes a message to deliver or queue.
buffer framed_port::take_landed(placement_state& placement) noexcept {
    queued_bytes_.subtract(placement.owned.size());
    return std::move(placement.owned);
}

void framed_port::leave_room(placement_state& placement) noexcept {
    const std::size_t bytes = placement.owned.size();
    placement.owned.reset();
    if (bytes > 0) queue_less(bytes);
}

void framed_port::evict_largest() noexcept {
    peer_record* largest = nullptr;
    peers_.for_each([&](peer_record& peer) {
        if (peer.up() && (largest == nullptr || held_for(peer) > held_for(*largest)))
            largest = &peer;
    });
    if (largest == nullptr) return;
    evicted_.add();
    limited_log(log_level::warn, "fabric", "dropped a peer whose messages are not consumed",
                {{"peer", largest->address}, {"bytes", held_for(*largest)}});
    drop_unasked(largest->id);
    end_peer(*largest, {errc::overloaded});
}

bool framed_port::is_idle(const frame_link& link) noexcept {
    const peer_record& peer = *link.record;
    return peer.sends.empty() && peer.expected.empty() && peer.to_ask.empty() &&
           peer.asked.empty() && peer.answers.empty() && peer.queued_bytes == 0 &&
           peer.placement.what == placement_state::kind::none;
}

/// Nothing is queued any more: returns memory to the system.
void framed_port::give_memory_back() noexcept {
    has_used_much_ = false;
    buffers_.trim();
    early_.trim();
}

}  // namespace amalgam::detail
