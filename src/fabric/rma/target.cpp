#include "fabric/rma/target.hpp"

#include <new>

#include "fabric/limits.hpp"

namespace amalgam::detail {

delivery rma_target::on_put(peer_record& peer, const frame_header& header,
                            const_bytes payload) noexcept {
    if (payload.size() < rma_request_bytes) return delivery::malformed;
    const rma_request request = read_request(payload.data());
    const const_bytes data = payload.subspan(rma_request_bytes);
    if (request.bytes != data.size()) return delivery::malformed;

    rma_answer reply{.tag = header.tag, .what = {errc::denied}};
    region_entry* target =
        regions_.check(request.key, request.offset, request.bytes, access::write);
    if (target != nullptr) {
        segment_cursor at = target->at(request.offset);
        reply.what = memory_.copy_in(target->segments, at, data) ? status{} : no_access;
    }
    answer(peer, reply);
    return delivery::taken;
}

delivery rma_target::on_get(peer_record& peer, const frame_header& header,
                            const_bytes payload) noexcept {
    if (payload.size() != rma_request_bytes) return delivery::malformed;
    const rma_request request = read_request(payload.data());

    rma_answer reply{.tag = header.tag, .what = {errc::denied}};
    if (request.bytes > limits::rma_piece_bytes) {
        reply.what = {errc::too_large};
    } else if (regions_.check(request.key, request.offset, request.bytes, access::read) !=
               nullptr) {
        reply.region = request.key.region;
        reply.offset = request.offset;
        reply.bytes = request.bytes;
    }
    answer(peer, reply);
    return delivery::taken;
}

bool rma_target::begin_put(peer_record& peer, const frame_header& header,
                           const_bytes prefix) noexcept {
    if (prefix.size() < rma_request_bytes) return false;
    const rma_request request = read_request(prefix.data());
    if (request.bytes != header.bytes - rma_request_bytes) return false;

    placement_state& placement = peer.placement;
    placement.what = placement_state::kind::put;
    region_entry* target =
        regions_.check(request.key, request.offset, request.bytes, access::write);
    if (target == nullptr) {
        placement.region = 0;
        placement.drop();
        return true;
    }
    const const_bytes data = prefix.subspan(rma_request_bytes);
    segment_cursor at = target->at(request.offset);
    const bool copied = memory_.copy_in(target->segments, at, data);
    try {
        slice(scatter(target->segments), at, request.bytes - data.size(), placement.segments);
    } catch (const std::bad_alloc&) {
        ender_.end_peer(peer, {errc::no_memory});
        return false;
    }
    placement.region = target->id;
    placement.failed = {};
    ++target->uses;
    placement.shown.into = placement.segments;
    if (!copied) {
        placement.drop();
        unwritable(peer);
    }
    return true;
}

void rma_target::end_put(peer_record& peer) noexcept {
    rma_answer reply{.tag = peer.placement.header.tag, .what = {errc::denied}};
    if (peer.placement.region != 0) reply.what = peer.placement.failed;
    forget_put(peer);
    answer(peer, reply);
}

void rma_target::unwritable(peer_record& peer) noexcept {
    peer.placement.failed = no_access;
}

void rma_target::forget_put(peer_record& peer) noexcept {
    region_entry* target = regions_.find(peer.placement.region);
    if (target != nullptr) --target->uses;
    peer.placement.region = 0;
}

void rma_target::answer(peer_record& peer, const rma_answer& reply) noexcept {
    const bool nobody_waits = peer.answers_sent == peer.answers.size();
    if (nobody_waits && send(peer, reply)) return;
    if (!peer.up()) return;
    try {
        peer.answers.push_back(reply);
    } catch (const std::bad_alloc&) {
        // The peer would wait forever: end the connection instead.
        ender_.end_peer(peer, {errc::no_memory});
    }
}

void rma_target::pump(peer_record& peer) noexcept {
    while (peer.up() && peer.answers_sent < peer.answers.size()) {
        if (!send(peer, peer.answers[peer.answers_sent])) return;
        ++peer.answers_sent;
    }
    peer.answers.clear();
    peer.answers_sent = 0;
}

bool rma_target::send(peer_record& peer, const rma_answer& reply) noexcept {
    status what = reply.what;
    if (reply.region != 0) {
        // Looked up again, as the region may have been closed while the reply waited.
        region_entry* source = regions_.find(reply.region);
        if (source != nullptr) return send_data(peer, reply, *source);
        what = {errc::denied};
    }
    std::byte raw[rma_status_bytes];
    write_status(raw, what);
    const const_bytes payload(raw);
    const frame_header header = header_of(frame_kind::rma_done, reply.tag, rma_status_bytes);
    return peer.link->send(header, {&payload, 1}, nullptr) == posted::done;
}

bool rma_target::send_data(peer_record& peer, const rma_answer& reply,
                           region_entry& source) noexcept {
    lent_piece* piece = pieces_.take();
    try {
        if (piece == nullptr) throw std::bad_alloc();
        segment_cursor at = source.at(reply.offset);
        piece->segments.emplace_back(piece->head.data(), rma_data_prefix_bytes);
        slice(scatter(source.segments), at, reply.bytes, piece->segments);
    } catch (const std::bad_alloc&) {
        if (piece != nullptr) pieces_.give_back(*piece);
        ender_.end_peer(peer, {errc::no_memory});
        return false;
    }
    // If the link will copy the data, read it now, by a copy that cannot fault. The link is
    // connected, as the request came over it, so it does not borrow a frame this short.
    if (rma_data_prefix_bytes + reply.bytes <= limits::max_copy_bytes &&
        !memory_.fetch_small(piece->segments, 1, reply.bytes)) {
        pieces_.give_back(*piece);
        return send(peer, {.tag = reply.tag, .what = no_access});
    }
    store_le(piece->head.data(), reply.offset);
    piece->region = reply.region;

    const frame_header header =
        header_of(frame_kind::get_data, reply.tag, rma_data_prefix_bytes + reply.bytes);
    mark(*piece, op_kind::piece, &peer);
    const posted how = peer.link->send(header, piece->segments, piece);
    if (how == posted::pending) {
        peer.sends.append(*piece);
        ++source.uses;
        return true;
    }
    pieces_.give_back(*piece);
    return how == posted::done;
}

void rma_target::sent(lent_piece& piece) noexcept {
    region_entry* source = regions_.find(piece.region);
    if (source != nullptr) --source->uses;
    pieces_.give_back(piece);
}

void rma_target::close(std::uint64_t region, const peer_table& peers) noexcept {
    region_entry* entry = regions_.find(region);
    if (entry == nullptr) return;
    const bool in_use = entry->uses > 0;
    regions_.close(region);
    if (!in_use) return;
    peers.for_each([&](peer_record& peer) {
        if (peer.placement.what == placement_state::kind::put && peer.placement.region == region) {
            peer.placement.region = 0;
            peer.placement.drop();
        }
        completion* next = peer.sends.first();
        while (peer.up() && next != nullptr) {
            completion* one = next;
            next = one->port_next;
            if (kind_of(*one) != op_kind::piece) continue;
            auto& piece = static_cast<lent_piece&>(*one);
            if (piece.region != region) continue;
            // Its frame is still sent whole: the peer asked while the region was open.
            peer.sends.remove(piece);
            peer.link->detach(piece);
            pieces_.give_back(piece);
        }
    });
}

}  // namespace amalgam::detail
