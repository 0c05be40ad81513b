#include "fabric/one_sided/exposures.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <span>

#include "fabric/one_sided/frames.hpp"
#include "fabric/one_sided/peer_keys.hpp"

namespace amalgam::detail {

delivery exposures::on_question(one_sided_peer& peer, std::uint64_t tag,
                                const_bytes payload) noexcept try {
    if (payload.size() < key_question_bytes ||
        payload.size() > key_question_bytes + one_sided_carrier::max_name_bytes ||
        peer.questions >= peer_keys::max_questions)
        return delivery::malformed;
    key_notice asked;
    asked.tag = tag;
    asked.key = remote_key::decode(
        std::span<const std::byte, remote_key::wire_bytes>(payload.data(), key_question_bytes));
    const const_bytes name = payload.subspan(key_question_bytes);
    peer.name.assign(name.begin(), name.end());
    peer.notices.push_back(asked);
    ++peer.questions;
    pump(peer);
    return delivery::taken;
} catch (const std::bad_alloc&) {
    (void)say_none(peer, tag);  // Else it stays unanswered, and packets carry its transfers.
    return delivery::taken;
}

void exposures::pump(one_sided_peer& peer) noexcept {
    std::size_t told = 0;
    while (peer.up && told < peer.notices.size() && tell(peer, peer.notices[told]))
        ++told;
    peer.notices.erase(peer.notices.begin(),
                       peer.notices.begin() + static_cast<std::ptrdiff_t>(told));
}

/// False: the link is full; to be continued.
bool exposures::tell(one_sided_peer& peer, key_notice& what) noexcept {
    if (what.gone) return send(peer, key_gone_kind, what.tag, {});
    if (!each_region_) {
        const mutable_bytes all{};
        return what.key.region == 0 ? tell_segments(peer, what, {&all, 1}) : refuse(peer, what);
    }
    // Looked up for each answer, as it may have been closed while this waited. The peer then learns
    // that by a notice of its own, if it was told anything.
    const region_entry* region = home_.region_of(what.key);
    if (region == nullptr || what.key.region == closing_ || region->bytes == 0 ||
        region->segments.size() > peer_keys::max_segments)
        return refuse(peer, what);
    try {
        if (peer.told.size() >= max_told && peer.told.count(what.key.region) == 0)
            return refuse(peer, what);
        exposed_.insert(what.key.region);
        peer.told.insert(what.key.region);
    } catch (const std::bad_alloc&) {
        return refuse(peer, what);
    }
    return tell_segments(peer, what, region->segments);
}

bool exposures::tell_segments(one_sided_peer& peer, key_notice& what, scatter segments) noexcept {
    std::array<std::byte, key_answer::wire_bytes + one_sided_carrier::max_key_bytes> payload;
    const auto told = std::span(payload).last<one_sided_carrier::max_key_bytes>();
    for (; what.next < segments.size(); ++what.next) {
        const std::size_t length = segments[what.next].size();
        std::size_t bytes = key_answer::wire_bytes;
        if (length > 0 || !each_region_) {
            const auto exposed =
                carrier_.expose(peer.by, peer.name, what.key, segments, what.next, told);
            if (!exposed) return refuse(peer, what);
            bytes += exposed.value();
        }
        key_answer{what.next, static_cast<std::uint16_t>(segments.size()), length}.encode(
            payload.data());
        if (!send(peer, key_answer_kind, what.tag, const_bytes(payload).first(bytes))) return false;
    }
    --peer.questions;
    return true;
}

bool exposures::refuse(one_sided_peer& peer, const key_notice& what) noexcept {
    if (!say_none(peer, what.tag)) return false;
    --peer.questions;
    return true;
}

bool exposures::say_none(one_sided_peer& peer, std::uint64_t question) noexcept {
    std::array<std::byte, key_answer::wire_bytes> payload;
    key_answer{}.encode(payload.data());
    return send(peer, key_answer_kind, question, payload);
}

bool exposures::send(one_sided_peer& peer, frame_kind kind, std::uint64_t tag,
                     const_bytes payload) noexcept {
    const std::size_t segments = payload.empty() ? 0 : 1;
    return peer.link.send(header_of(kind, tag, payload.size()), {&payload, segments}, nullptr) ==
           posted::done;
}

void exposures::close(const remote_key& key, const std::vector<one_sided_peer*>& peers) noexcept {
    if (exposed_.erase(key.region) == 0 && each_region_) return;
    carrier_.hide(key);
    if (!each_region_) return;
    closing_ = key.region;
    for (one_sided_peer* peer : peers) {
        if (peer->told.erase(key.region) == 0 || !peer->up) continue;
        try {
            key_notice gone;
            gone.tag = key.region;
            gone.gone = true;
            peer->notices.push_back(gone);
        } catch (const std::bad_alloc&) {
            continue;  // Its next transfer is denied, and costs it no more than that.
        }
        pump(*peer);
    }
    closing_ = 0;
}

}  // namespace amalgam::detail
