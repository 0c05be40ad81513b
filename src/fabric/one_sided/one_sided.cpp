#include "fabric/one_sided/one_sided.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "fabric/one_sided/frames.hpp"

namespace amalgam::detail {

one_sided_part::one_sided_part(one_sided_carrier& carrier, one_sided_port& port,
                               std::chrono::milliseconds silence_limit)
    : port_(port),
      carrier_(carrier),
      facts_(carrier.one_sided_traits()),
      silence_limit_(silence_limit),
      keys_(carrier),
      memory_(carrier),
      exposures_(carrier, *this),
      transfers_(carrier, *this, keys_, memory_) {}

one_sided_part::~one_sided_part() {
    for (const auto& peer : all_)
        keys_.forget(*peer);
}

one_sided_peer* one_sided_part::add(frame_link& link, packet_link& by) noexcept try {
    all_.reserve(all_.size() + 1);
    peers_.reserve(peers_.size() + 1);
    all_.push_back(std::make_unique<one_sided_peer>(link, by));
    peers_.push_back(all_.back().get());
    keys_.greet(*peers_.back());
    return peers_.back();
} catch (const std::bad_alloc&) {
    return nullptr;
}

void one_sided_part::remove(one_sided_peer& peer) noexcept {
    keys_.forget(peer);
    carrier_.left(peer.by);
    std::erase(peers_, &peer);
    peer.up = false;
    peer.unlinked = true;
    if (peer.operations.empty()) destroy(peer);
}

void one_sided_part::destroy(one_sided_peer& peer) noexcept {
    std::erase_if(all_, [&](const auto& each) { return each.get() == &peer; });
}

delivery one_sided_part::deliver(one_sided_peer& peer, const frame_header& header,
                                 const_bytes payload) noexcept {
    if (header.kind == key_question_kind) return exposures_.on_question(peer, header.tag, payload);
    if (header.kind == key_answer_kind) return keys_.on_answer(peer, header.tag, payload);
    if (header.kind == key_gone_kind && payload.empty()) return keys_.on_gone(peer, header.tag);
    return delivery::malformed;
}

bool one_sided_part::down(one_sided_peer& peer, status why) noexcept {
    if (peer.given_up || transfers_.down(peer, why, clock::steady().now() + silence_limit_))
        return true;
    peer.is_awaited = true;
    ++parting_;
    return false;
}

void one_sided_part::transfers_over(one_sided_peer& peer) noexcept {
    if (peer.unlinked) return destroy(peer);
    stop_waiting(peer);
}

void one_sided_part::stop_waiting(one_sided_peer& peer) noexcept {
    if (!std::exchange(peer.is_awaited, false)) return;
    --parting_;
    port_.transfers_over(peer.link);
}

void one_sided_part::give_up(one_sided_peer& peer) noexcept {
    transfers_.give_up(peer);
    stop_waiting(peer);
}

void one_sided_part::region_opened(const remote_key& key, scatter segments) noexcept {
    exposures_.open(key, segments);
    if (facts_.registers_memory) memory_.region_opened(key.region, segments);
}

void one_sided_part::region_closed(const remote_key& key) noexcept {
    exposures_.close(key, peers_);
    if (!facts_.registers_memory) return;
    if (const region_entry* region = port_.region_of(key))
        memory_.region_closed(key.region, region->segments);
}

void one_sided_part::progress() noexcept {
    transfers_.pump();
    if (facts_.registers_memory) memory_.look_at_blocks();
}

void one_sided_part::look_at_limits() noexcept {
    if (parting_ == 0) return;
    const clock::time_point now = clock::steady().now();
    for (one_sided_peer* peer : peers_)
        if (peer->is_awaited && now >= peer->gives_up_at) give_up(*peer);
}

void one_sided_part::end(const std::function<void()>& progress,
                         std::chrono::milliseconds patience) noexcept {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (one_sided_peer* peer : peers_)
        if (peer->up) (void)transfers_.down(*peer, {errc::closed}, {});
    while (transfers_.held() > 0 && std::chrono::steady_clock::now() < until)
        progress();
    for (one_sided_peer* peer : peers_)
        if (!peer->operations.empty() && !peer->given_up) give_up(*peer);
}

void one_sided_part::drop() noexcept {
    carrier_.end_one_sided();
    for (const auto& peer : all_)
        transfers_.drop(*peer);
}

}  // namespace amalgam::detail
