#include "fabric/rma/target.hpp"

#include <cerrno>
#include <new>

#include "fabric/limits.hpp"
#include "fabric/memory/atomic_operation.hpp"

namespace amalgam::detail {

namespace {

/// What the start of a put's frame says. `range` of a notified one is all of the put; the frame's
/// bytes are the last of it.
struct put_frame {
    rma_request range;
    std::size_t head;     ///< Bytes before the data.
    std::uint64_t bytes;  ///< Of data.

    std::uint64_t offset() const noexcept { return range.offset + range.bytes - bytes; }
};

constexpr std::size_t head_of(frame_kind kind) noexcept {
    return kind == frame_kind::put_notify ? rma_notify_bytes : rma_request_bytes;
}

/// Precondition: the head is there.
put_frame read_put(const frame_header& header, const_bytes start) noexcept {
    const std::size_t head = head_of(header.kind);
    return {read_request(start.data()), head, header.bytes - head};
}

bool is_sound(frame_kind kind, const put_frame& put) noexcept {
    return kind == frame_kind::put_notify ? put.bytes <= put.range.bytes
                                          : put.bytes == put.range.bytes;
}

put_notice notice_of(const peer_record& peer, const put_frame& put, const_bytes start) noexcept {
    return {peer.id, put.range.key.region, put.range.offset, put.range.bytes,
            load_le<std::uint64_t>(start.data() + rma_request_bytes)};
}

}  // namespace

delivery rma_target::on_put(peer_record& peer, const frame_header& header,
                            const_bytes payload) noexcept {
    if (payload.size() < rma_request_bytes) return delivery::malformed;
    const rma_request request = read_request(payload.data());
    const const_bytes data = payload.subspan(rma_request_bytes);
    if (request.bytes != data.size()) return delivery::malformed;
    status what{errc::denied};
    region_entry* target =
        regions_.check(peer, request.key, request.offset, request.bytes, access::write);
    if (target != nullptr) {
        segment_cursor at = target->at(request.offset);
        what = memory_.copy_in(target->segments, at, data) ? status{} : no_access;
    }
    answer_put(peer, header.tag, what);
    return delivery::taken;
}

delivery rma_target::on_put_notify(peer_record& peer, const frame_header& header,
                                   const_bytes payload, put_notice& told) noexcept {
    if (payload.size() < rma_notify_bytes) return delivery::malformed;
    const put_frame put = read_put(header, payload);
    if (!is_sound(header.kind, put)) return delivery::malformed;
    status what{errc::denied};
    region_entry* target =
        regions_.check(peer, put.range.key, put.range.offset, put.range.bytes, access::write);
    if (target != nullptr) {
        segment_cursor at = target->at(put.offset());
        what =
            memory_.copy_in(target->segments, at, payload.subspan(put.head)) ? status{} : no_access;
    }
    told = notice_of(peer, put, payload);
    answer_notified(peer, header.tag, what, told);
    return delivery::taken;
}

void rma_target::answer_put(peer_record& peer, std::uint64_t tag, status what) noexcept {
    // The pieces of one put follow each other, so one number is all there is to remember.
    if (!what.ok()) [[unlikely]]
        peer.failed_put = tag;
    answer(peer, {.tag = tag, .what = what});
}

/// Unsets `told` unless the whole put succeeded.
void rma_target::answer_notified(peer_record& peer, std::uint64_t tag, status what,
                                 put_notice& told) noexcept {
    if (peer.failed_put == tag && what.ok()) what = {errc::denied};
    answer_put(peer, tag, what);
    if (!what.ok() || !peer.up()) told = {};
}

delivery rma_target::on_atomic(peer_record& peer, const frame_header& header,
                               const_bytes payload) noexcept {
    const bool adds = header.kind == frame_kind::fetch_add;
    if (payload.size() != (adds ? rma_fetch_add_bytes : rma_compare_swap_bytes))
        return delivery::malformed;
    const auto key = remote_key::decode(payload.first<remote_key::wire_bytes>());
    const auto offset = load_le<std::uint64_t>(payload.data() + remote_key::wire_bytes);
    atomic_operation asked;
    asked.operand = load_le<std::uint64_t>(payload.data() + rma_place_bytes);
    if (!adds) {
        asked.what = atomic_operation::kind::compare_swap;
        asked.desired = load_le<std::uint64_t>(payload.data() + rma_fetch_add_bytes);
    }

    rma_answer reply{.tag = header.tag, .what = {errc::denied}};
    region_entry* target =
        regions_.check(peer, key, offset, atomic_operation::bytes, access::read_write);
    if (target != nullptr) {
        std::byte* const number = number_at(target->segments, target->at(offset));
        if (number == nullptr) {
            reply.what = {errc::invalid, EINVAL};
        } else if (!memory_.may_update({number, atomic_operation::bytes})) {
            reply.what = no_access;
        } else {
            reply.is_fetched = true;
            reply.bytes = asked.apply(number);
        }
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
    } else if (regions_.check(peer, request.key, request.offset, request.bytes, access::read) !=
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
    if (prefix.size() < head_of(header.kind)) return false;
    const put_frame put = read_put(header, prefix);
    if (!is_sound(header.kind, put)) return false;

    placement_state& placement = peer.placement;
    placement.what = placement_state::kind::put;
    placement.told = {};
    if (header.kind == frame_kind::put_notify) placement.told = notice_of(peer, put, prefix);
    region_entry* target =
        regions_.check(peer, put.range.key, put.range.offset, put.range.bytes, access::write);
    if (target == nullptr) {
        placement.region = 0;
        placement.drop();
        return true;
    }
    const const_bytes data = prefix.subspan(put.head);
    segment_cursor at = target->at(put.offset());
    const bool copied = memory_.copy_in(target->segments, at, data);
    try {
        slice(scatter(target->segments), at, put.bytes - data.size(), placement.segments);
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

put_notice rma_target::end_put(peer_record& peer) noexcept {
    placement_state& placement = peer.placement;
    const status what = placement.region != 0 ? placement.failed : status{errc::denied};
    forget_put(peer);
    put_notice told = placement.told;
    if (told.from)
        answer_notified(peer, placement.header.tag, what, told);
    else
        answer_put(peer, placement.header.tag, what);
    return told;
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
    served_.add();
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
    if (reply.is_fetched) [[unlikely]]
        return send_fetched(peer, reply);
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

bool rma_target::send_fetched(peer_record& peer, const rma_answer& reply) noexcept {
    std::byte raw[rma_fetched_bytes];
    store_le(raw, reply.bytes);
    const const_bytes payload(raw);
    return peer.link->send(header_of(frame_kind::fetched, reply.tag, rma_fetched_bytes),
                           {&payload, 1}, nullptr) == posted::done;
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
