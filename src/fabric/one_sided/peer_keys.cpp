#include "fabric/one_sided/peer_keys.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/one_sided/frames.hpp"

namespace amalgam::detail {

known_key* peer_keys::find(one_sided_peer& peer, const remote_key& key) noexcept {
    const std::uint64_t region = each_region_ ? key.region : 0;
    known_key* one = peer.latest;
    if (one == nullptr || one->key.region != region) {
        const auto at = peer.keys.find(region);
        if (at == peer.keys.end()) {
            ask(peer, each_region_ ? key : remote_key{});
            return nullptr;
        }
        one = peer.latest = at->second.get();
    }
    if (each_region_ && one->what == known_key::state::none && one->key != key) {
        // There was none for a forged key, or for one of an earlier region of that number.
        drop(peer, region);
        ask(peer, key);
        return nullptr;
    }
    // Another key for a known region is wrong; the target says so.
    if (one->what != known_key::state::open || (each_region_ && one->key != key)) return nullptr;
    one->last_use = ++uses_;
    return one;
}

const known_segment& peer_keys::segment_at(const known_key& one, std::uint64_t offset) noexcept {
    const auto after = std::upper_bound(
        one.segments.begin(), one.segments.end(), offset,
        [](std::uint64_t where, const known_segment& each) { return where < each.start; });
    return *(after - 1);
}

void peer_keys::ask(one_sided_peer& peer, const remote_key& key) noexcept try {
    if (peer.unanswered >= max_questions || !make_room(peer)) return;
    auto made = std::make_unique<known_key>();
    made->key = key;
    made->question = ++questions_;
    peer.asked.reserve(peer.asked.size() + 1);
    peer.dropped.reserve(peer.keys.size() + peer.dropped.size() + 1);  // For drop().
    known_key& one = *peer.keys.emplace(key.region, std::move(made)).first->second;

    const auto wire = key.encode();
    const const_bytes payload[] = {wire, carrier_.one_sided_name()};
    const std::size_t bytes = wire.size() + payload[1].size();
    if (peer.link.send(header_of(key_question_kind, one.question, bytes), payload, nullptr) !=
        posted::done) {
        peer.keys.erase(key.region);  // The next transfer asks again.
        return;
    }
    peer.asked.push_back(&one);
    ++peer.unanswered;
    ++count_;
} catch (const std::bad_alloc&) {  // Packets carry it.
}

/// False: every key is in use.
bool peer_keys::make_room(one_sided_peer& peer) noexcept {
    if (peer.keys.size() < max_per_peer && count_ < max_in_all) return true;
    const known_key* oldest = nullptr;
    for (const auto& [region, one] : peer.keys)
        if (one->uses == 0 && one->what != known_key::state::asked &&
            (oldest == nullptr || one->last_use < oldest->last_use))
            oldest = one.get();
    if (oldest == nullptr) return false;
    drop(peer, oldest->key.region);
    return true;
}

void peer_keys::close_segments(known_key& one) noexcept {
    for (const known_segment& each : one.segments)
        carrier_.close_key(each.key);
    one.segments.clear();
}

void peer_keys::drop(one_sided_peer& peer, std::uint64_t region) noexcept {
    const auto at = peer.keys.find(region);
    if (at == peer.keys.end()) return;
    std::unique_ptr<known_key> one = std::move(at->second);
    peer.keys.erase(at);
    --count_;
    if (peer.latest == one.get()) peer.latest = nullptr;
    std::erase(peer.asked, one.get());
    if (one->uses == 0) return close_segments(*one);
    one->dropped = true;
    peer.dropped.push_back(std::move(one));
}

void peer_keys::leave(one_sided_peer& peer, known_key& one) noexcept {
    if (--one.uses > 0) return;
    if (one.dropped) {
        close_segments(one);
        std::erase_if(peer.dropped, [&](const auto& each) { return each.get() == &one; });
    } else if (one.what == known_key::state::none) {
        close_segments(one);
    }
}

/// From now on packets carry its transfers.
void peer_keys::refuse(known_key& one) noexcept {
    one.what = known_key::state::none;
    if (one.uses == 0) close_segments(one);
}

bool peer_keys::open_segment(one_sided_peer& peer, known_key& one, const key_answer& answer,
                             known_segment segment, const_bytes told) noexcept try {
    one.segments.reserve(one.segments.size() + 1);
    const auto opened = carrier_.open_key(peer.by, one.key, answer.index, answer.bytes, told);
    if (!opened) return false;
    segment.key = opened.value();
    one.segments.push_back(segment);
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

delivery peer_keys::on_answer(one_sided_peer& peer, std::uint64_t tag,
                              const_bytes payload) noexcept {
    if (payload.size() < key_answer::wire_bytes ||
        payload.size() > key_answer::wire_bytes + one_sided_carrier::max_key_bytes)
        return delivery::malformed;
    const key_answer answer = key_answer::decode(payload.data());
    const const_bytes told = payload.subspan(key_answer::wire_bytes);
    const auto at = std::find_if(peer.asked.begin(), peer.asked.end(),
                                 [&](const known_key* one) { return one->question == tag; });
    if (at == peer.asked.end()) {
        if (tag > questions_) return delivery::malformed;
        // Told that the region is gone, the question was dropped; its answers still come.
        const bool is_answered = answer.count == 0 || answer.index + 1 == answer.count;
        if (is_answered && peer.unanswered > peer.asked.size()) --peer.unanswered;
        return delivery::taken;
    }
    known_key& one = **at;
    if (answer.count == 0) {
        peer.asked.erase(at);
        --peer.unanswered;
        refuse(one);
        return delivery::taken;
    }
    const bool last = one.answers + 1 == answer.count;
    if (answer.count > max_segments || answer.index != one.answers ||
        (!each_region_ && answer.count != 1) || answer.bytes > one.key.bytes - one.told_bytes ||
        (last && answer.bytes != one.key.bytes - one.told_bytes))
        return delivery::malformed;
    ++one.answers;
    const std::uint64_t start = std::exchange(one.told_bytes, one.told_bytes + answer.bytes);
    const bool is_all = !each_region_;  // One segment, of any length.
    if (one.what == known_key::state::asked && (answer.bytes > 0 || is_all)) {
        const std::uint64_t bytes = is_all ? ~std::uint64_t{0} : answer.bytes;
        if (!open_segment(peer, one, answer, {nullptr, start, bytes}, told)) refuse(one);
    }
    if (!last) return delivery::taken;
    peer.asked.erase(at);
    --peer.unanswered;
    if (one.what == known_key::state::asked)
        one.what = one.segments.empty() ? known_key::state::none : known_key::state::open;
    return delivery::taken;
}

delivery peer_keys::on_gone(one_sided_peer& peer, std::uint64_t region) noexcept {
    drop(peer, region);
    return delivery::taken;
}

void peer_keys::forget(one_sided_peer& peer) noexcept {
    while (!peer.keys.empty())
        drop(peer, peer.keys.begin()->first);
}

}  // namespace amalgam::detail
