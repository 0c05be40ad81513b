// Arrivals from the transport: whole frames, and large ones that land at their destination.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "fabric/memory/guarded_memory.hpp"
#include "fabric/port/framed_port.hpp"

namespace amalgam::detail {

namespace {
mutable_bytes destination(const completion& receive) noexcept {
    return {reinterpret_cast<std::byte*>(receive.port_words[2]), receive.port_words[3]};
}
}  // namespace

delivery framed_port::deliver(frame_link& link, const frame_header& header,
                              const_bytes payload) noexcept {
    peer_record& from = *link.record;
    switch (header.kind) {
        [[likely]] case frame_kind::unexpected : return deliver_message(from, header.tag, payload);
        case frame_kind::expected:
            return deliver_expected(from, header.tag, payload, nullptr);
        case frame_kind::put:
            if (target_.on_put(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        case frame_kind::put_notify: {
            put_notice told;
            if (target_.on_put_notify(from, header, payload, told) == delivery::malformed)
                return delivery::malformed;
            return told.from ? tell(from, told) : settle(from);
        }
        case frame_kind::fetch_add:
        case frame_kind::compare_swap:
            if (target_.on_atomic(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        case frame_kind::fetched:
            if (initiator_.on_fetched(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        case frame_kind::get:
            if (target_.on_get(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        case frame_kind::get_data:
            if (initiator_.on_data(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        case frame_kind::rma_done:
            if (initiator_.on_done(from, header, payload) == delivery::malformed)
                return delivery::malformed;
            return settle(from);
        default:
            return deliver_own(link, header, payload);
    }
}

delivery framed_port::deliver_expected(peer_record& from, std::uint64_t tag, const_bytes bytes,
                                       buffer* owned) noexcept {
    ++from.traffic.received_messages;
    from.traffic.received_bytes += bytes.size();
    completion* receive = from.expected.take_receive(tag);
    if (receive == nullptr) return keep(from, tag, bytes, owned, kept::expected);
    const mutable_bytes into = destination(*receive);
    if (bytes.size() > into.size()) {
        completions_.finish(*receive, {errc::too_large}, 0);
    } else {
        if (!bytes.empty()) std::memcpy(into.data(), bytes.data(), bytes.size());
        completions_.finish(*receive, {}, bytes.size());
    }
    return from.up() ? delivery::taken : delivery::gone;
}

delivery framed_port::keep(peer_record& from, std::uint64_t tag, const_bytes bytes, buffer* owned,
                           kept what) noexcept {
    early_message* early = early_.take();
    if (early != nullptr && owned != nullptr) {
        early->bytes = std::move(*owned);
    } else if (early != nullptr && !bytes.empty()) {
        early->bytes = buffers_.try_take(bytes.size());
        if (early->bytes.size() == bytes.size()) {
            std::memcpy(early->bytes.data(), bytes.data(), bytes.size());
        } else {
            early_.give_back(*early);
            early = nullptr;
        }
    }
    if (early == nullptr) {  // End the connection rather than lose a message.
        end_peer(from, {errc::no_memory});
        return delivery::gone;
    }
    early->tag = tag;
    early->from = from.id;
    early->is_put = what == kept::put;
    const std::size_t counted = weight(*early);
    if (what == kept::expected)
        from.expected.add(*early);
    else
        unasked_.append(*early);
    queue_more(from, counted);
    return settle(from);
}

delivery framed_port::tell(peer_record& from, const put_notice& told) noexcept {
    // Earlier messages still queued go first.
    if (sink_ == nullptr || !unasked_.empty())
        return keep(from, 0, as_bytes_of(told), nullptr, kept::put);
    sink_->on_put(told);
    return settle(from);
}

delivery framed_port::settle(peer_record& from) noexcept {
    if (!from.up()) return delivery::gone;
    if (!must_pause(from, 1)) return delivery::taken;
    from.paused = true;
    some_wait_for_all_ =
        some_wait_for_all_ || queued_bytes_.value() > options_.max_queued_bytes_total;
    return delivery::pause;
}

/// `share` 1: over a limit; 2: over half of it.
bool framed_port::must_pause(const peer_record& peer, std::size_t share) const noexcept {
    // A peer without queued messages is read even while others are paused: they may be waiting for
    // it.
    return peer.queued_bytes > options_.max_queued_bytes / share ||
           (peer.queued_bytes > 0 &&
            queued_bytes_.value() > options_.max_queued_bytes_total / share) ||
           peer.answers.size() - peer.answers_sent > rma_target::answer_limit / share;
}

void framed_port::resume_if_room(peer_record& peer) noexcept {
    if (!peer.paused || !peer.up()) return;
    // Waits until half is free, so that the link does not stop and start for every message.
    if (must_pause(peer, 2)) return;
    peer.paused = false;
    resume(*peer.link);
}

void framed_port::unqueued(peer_record& peer, early_message& one) noexcept {
    peer.queued_bytes -= weight(one);
    discard(one);
    resume_if_room(peer);
}

std::size_t framed_port::deliver_unasked(std::size_t budget) noexcept {
    std::size_t ran = 0;
    while (ran < budget && sink_ != nullptr && !unasked_.empty()) {
        early_message& one = *unasked_.first();
        // Operations posted to the lost peer meanwhile end first.
        if (one.is_down && !completions_.empty()) break;
        unasked_.remove(one);
        ++ran;
        if (one.is_down)
            deliver_notice(*peers_.find(one.from));
        else
            deliver_early(one);
    }
    return ran;
}

void framed_port::deliver_notice(peer_record& peer) noexcept {
    --untold_;
    sink_->on_peer_down(peer.id, peer.why);
    ended_traffic_ += peer.traffic;
    peers_.remove(peer);
}

void framed_port::deliver_early(early_message& one) noexcept {
    const std::size_t bytes = weight(one);
    if (peer_record* peer = peers_.find(one.from)) {
        peer->queued_bytes -= bytes;
        resume_if_room(*peer);
    }
    if (one.is_put) {
        put_notice told;
        std::memcpy(&told, std::as_const(one.bytes).data(), sizeof told);
        sink_->on_put(told);
    } else {
        message arrived(one.from, one.tag, std::as_const(one.bytes).bytes(), &one.bytes, buffers_);
        sink_->on_message(arrived);
    }
    early_.give_back(one);
    queue_less(bytes);
}

placement* framed_port::begin_placement(frame_link& link, const frame_header& header,
                                        const_bytes prefix) noexcept {
    peer_record& from = *link.record;
    placement_state& placement = from.placement;
    placement.shown = {};
    placement.segments.clear();
    placement.header = header;
    bool sound = false;
    switch (header.kind) {
        case frame_kind::unexpected:
            sound = begin_owned(from, header, prefix);
            placement.what = placement_state::kind::unexpected;
            break;
        case frame_kind::expected:
            sound = begin_expected(from, header, prefix);
            break;
        case frame_kind::put:
        case frame_kind::put_notify:
            sound = target_.begin_put(from, header, prefix);
            break;
        case frame_kind::get_data:
            sound = initiator_.begin_data(from, header, prefix);
            break;
        default:  // The others are small and arrive whole, except own ones that a packet's end
                  // cuts.
            if (header.bytes > own_frame_bytes_ || header.kind < frame_kind::first_of_transport)
                break;
            sound = begin_owned(from, header, prefix);
            placement.what = placement_state::kind::own;
            break;
    }
    if (!sound) placement.what = placement_state::kind::none;
    return sound ? &placement.shown : nullptr;
}

bool framed_port::begin_expected(peer_record& from, const frame_header& header,
                                 const_bytes prefix) noexcept {
    placement_state& placement = from.placement;
    completion* receive = from.expected.take_receive(header.tag);
    if (receive == nullptr) {
        placement.what = placement_state::kind::early;
        return begin_owned(from, header, prefix);
    }
    placement.what = placement_state::kind::receive;
    const mutable_bytes into = destination(*receive);
    if (header.bytes > into.size()) {
        completions_.push(*receive, {errc::too_large}, 0);
        placement.receive = nullptr;
        placement.drop();
        return true;
    }
    mark(*receive, op_kind::placement, &from);
    placement.receive = receive;
    std::memcpy(into.data(), prefix.data(), prefix.size());
    placement.segment = into.first(header.bytes).subspan(prefix.size());
    placement.shown.into = {&placement.segment, 1};
    return true;
}

bool framed_port::begin_owned(peer_record& from, const frame_header& header,
                              const_bytes prefix) noexcept {
    if (header.bytes > can_.max_message_bytes) return false;
    placement_state& placement = from.placement;
    // Announced data may never arrive: allocate as the bytes come in.
    const std::size_t bytes = std::min<std::size_t>(header.bytes, placement_step_);
    placement.owned = buffers_.try_take(bytes);
    if (placement.owned.size() != bytes) {
        end_peer(from, {errc::no_memory});
        return false;
    }
    if (!take_room(from, bytes)) return false;
    std::memcpy(placement.owned.data(), prefix.data(), prefix.size());
    placement.segment = placement.owned.bytes().subspan(prefix.size());
    placement.shown.into = {&placement.segment, 1};
    return true;
}

bool framed_port::extend_placement(frame_link& link) noexcept {
    peer_record& from = *link.record;
    placement_state& placement = from.placement;
    const std::size_t had = placement.owned.size();
    const std::size_t bytes = std::min<std::size_t>(placement.header.bytes, 4 * had);
    buffer larger = buffers_.try_take(bytes);
    if (larger.size() != bytes) {
        end_peer(from, {errc::no_memory});
        return false;
    }
    std::memcpy(larger.data(), placement.owned.data(), had);
    placement.owned = std::move(larger);
    placement.segment = placement.owned.bytes().subspan(had);
    placement.shown.into = {&placement.segment, 1};
    return take_room(from, bytes - had);
}

delivery framed_port::end_placement(frame_link& link) noexcept {
    peer_record& from = *link.record;
    placement_state& placement = from.placement;
    const std::uint64_t tag = placement.header.tag;
    switch (std::exchange(placement.what, placement_state::kind::none)) {
        case placement_state::kind::unexpected: {
            buffer owned = take_landed(placement);
            return deliver_message(from, tag, std::as_const(owned).bytes(), &owned);
        }
        case placement_state::kind::early: {
            buffer owned = take_landed(placement);
            // A receive may have been posted while the message was being read.
            return deliver_expected(from, tag, std::as_const(owned).bytes(), &owned);
        }
        case placement_state::kind::receive:
            ++from.traffic.received_messages;
            from.traffic.received_bytes += placement.header.bytes;
            if (completion* receive = std::exchange(placement.receive, nullptr))
                completions_.finish(*receive, {}, placement.header.bytes);
            return settle(from);
        case placement_state::kind::put: {
            const put_notice told = target_.end_put(from);
            return told.from ? tell(from, told) : settle(from);
        }
        case placement_state::kind::get:
            initiator_.end_data(from);
            return settle(from);
        case placement_state::kind::own: {
            const buffer owned = take_landed(placement);
            return deliver_own(link, placement.header, owned.bytes());
        }
        case placement_state::kind::none:
            break;
    }
    return delivery::malformed;
}

void framed_port::sent(completion& op, status what) noexcept {
    peer_record& peer = *peer_of(op);
    peer.sends.remove(op);
    if (kind_of(op) == op_kind::send) {
        completions_.finish(op, what, op.port_words[1]);
        return;
    }
    auto& piece = static_cast<lent_piece&>(op);
    if (piece.operation != nullptr)
        initiator_.sent(piece);
    else
        target_.sent(piece);
}

framed_port::remedy framed_port::unreadable(completion& op, bool begun) noexcept {
    peer_record& peer = *peer_of(op);
    if (kind_of(op) == op_kind::send) {
        peer.sends.remove(op);
        completions_.push(op, no_access, 0);
        return begun ? remedy::break_off : remedy::leave_out;
    }
    auto& piece = static_cast<lent_piece&>(op);
    // Zeros in the reply to a get would pass for the region's contents; those of a notified put
    // would be told as written.
    if (piece.operation == nullptr || rma_initiator::is_told_of(piece, begun))
        return remedy::break_off;
    peer.sends.remove(op);
    initiator_.unreadable(piece, no_access, begun);
    return begun ? remedy::blank : remedy::leave_out;
}

void framed_port::unwritable(frame_link& link) noexcept {
    placement_state& placement = link.record->placement;
    switch (placement.what) {
        case placement_state::kind::receive:
            if (completion* receive = std::exchange(placement.receive, nullptr))
                completions_.push(*receive, no_access, 0);
            break;
        case placement_state::kind::put:
            target_.unwritable(*link.record);
            break;
        case placement_state::kind::get:
            if (placement.operation != nullptr) initiator_.fail(*placement.operation, no_access);
            break;
        default:  // The port's own memory.
            break;
    }
    placement.drop();
}

void framed_port::writable(frame_link& link) noexcept {
    peer_record& peer = *link.record;
    if (!peer.up()) return;
    target_.pump(peer);
    initiator_.pump(peer);
    resume_if_room(peer);
}

}  // namespace amalgam::detail
