#include "fabric/rma/initiator.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "fabric/limits.hpp"

namespace amalgam::detail {

std::size_t rma_operation::piece_bytes(std::uint64_t done) const noexcept {
    return static_cast<std::size_t>(std::min<std::uint64_t>(limits::rma_piece_bytes, total - done));
}

posted rma_initiator::put(peer_record& peer, gather from, const remote_key& key,
                          std::uint64_t offset, completion& user) noexcept {
    rma_operation* op = start(peer, key, offset, user);
    if (op == nullptr) return posted::pending;
    op->what = rma_operation::kind::put;
    op->from = from;
    op->total = op->whole = total_bytes(from);
    return launch(*op);
}

/// Once a notice is queued, memory that proves unreadable costs the connection.
bool rma_initiator::may_tell_of(gather from) noexcept {
    return rma_notify_bytes + total_bytes(from) <= limits::max_copy_bytes || memory_.may_read(from);
}

posted rma_initiator::put_notify(peer_record& peer, gather from, const remote_key& key,
                                 std::uint64_t offset, std::uint64_t notice, bool moved,
                                 completion& user) noexcept {
    const std::size_t bytes = total_bytes(from);
    if (!moved && !may_tell_of(from)) {
        completions_.opened();
        completions_.push(user, no_access, 0);
        return posted::pending;
    }
    rma_operation* op = start(peer, key, offset, user);
    if (op == nullptr) return posted::pending;
    op->what = rma_operation::kind::put;
    op->notifies = true;
    op->notice = notice;
    op->whole = bytes;
    if (!moved) {
        op->from = from;
        op->total = op->whole;
    }
    return launch(*op, /*may_be_full=*/!moved);
}

posted rma_initiator::atomic(peer_record& peer, const remote_key& key, std::uint64_t offset,
                             const atomic_operation& atomic, std::uint64_t* old,
                             completion& user) noexcept {
    rma_operation* op = start(peer, key, offset, user);
    if (op == nullptr) return posted::pending;
    op->what = rma_operation::kind::atomic;
    op->atomic = atomic.what;
    op->operand = atomic.operand;
    op->desired = atomic.desired;
    op->old = old;
    op->total = atomic_operation::bytes;
    return launch(*op);
}

posted rma_initiator::get(peer_record& peer, scatter into, const remote_key& key,
                          std::uint64_t offset, completion& user) noexcept {
    rma_operation* op = start(peer, key, offset, user);
    if (op == nullptr) return posted::pending;
    op->into = into;
    op->total = op->whole = total_bytes(into);
    return launch(*op);
}

void rma_initiator::go_on(peer_record& peer, const rma_rest& rest, completion& user) noexcept {
    if (rest.notifies && !may_tell_of(rest.from)) {
        completions_.opened();
        return completions_.push(user, no_access, 0);
    }
    rma_operation* op = start(peer, rest.key, rest.offset, user);
    if (op == nullptr) return;
    op->notifies = rest.notifies;
    op->notice = rest.notice;
    op->what = rest.is_put ? rma_operation::kind::put : rma_operation::kind::get;
    op->from = rest.from;
    op->into = rest.into;
    op->at = rest.at;
    op->total = rest.left;
    op->whole = rest.total;
    (void)launch(*op, /*may_be_full=*/false);
}

rma_operation* rma_initiator::start(peer_record& peer, const remote_key& key, std::uint64_t offset,
                                    completion& user) noexcept {
    completions_.opened();
    try {
        if (ids_.make_room() >= slots_.size()) slots_.push_back(std::make_unique<rma_operation>());
    } catch (const std::bad_alloc&) {
        completions_.push(user, {errc::no_memory}, 0);
        return nullptr;
    }
    const std::uint64_t id = ids_.take();
    rma_operation& op = *slots_[slot_ids::slot(id)];
    ::new (&op) rma_operation;  // What only some kinds use stays unset.
    op.id = id;
    op.user = &user;
    op.peer = &peer;
    op.key = key;
    op.offset = offset;
    mark(user, op_kind::transfer, &peer);
    user.port_words[1] = reinterpret_cast<std::uintptr_t>(&op);
    return &op;
}

posted rma_initiator::launch(rma_operation& op, bool may_be_full) noexcept {
    peer_record& peer = *op.peer;
    const bool queue = !peer.to_ask.empty() || peer.unanswered >= limits::rma_window;
    peer.to_ask.append(op);
    if (!queue) pump(peer);
    // Nothing was sent, as the first frame did not fit: as if never posted.
    if (!queue && may_be_full && peer.up() && op.user != nullptr && op.pieces_asked == 0) {
        completions_.withdraw(retire(op));
        return posted::full;
    }
    return posted::pending;
}

rma_operation* rma_initiator::find(const peer_record& peer, std::uint64_t id) noexcept {
    if (id == 0 || slot_ids::slot(id) >= slots_.size()) return nullptr;
    rma_operation* op = slots_[slot_ids::slot(id)].get();
    return op->id == id && op->peer == &peer ? op : nullptr;
}

void rma_initiator::pump(peer_record& peer) noexcept {
    while (peer.up() && peer.unanswered < limits::rma_window) {
        rma_operation* op = peer.to_ask.first();
        if (op == nullptr) return;
        // Full; otherwise the operation failed for lack of memory, and the next one is tried.
        if (send_piece(*op) == posted::full && peer.to_ask.first() == op) return;
    }
}

posted rma_initiator::send_piece(rma_operation& op) noexcept {
    peer_record& peer = *op.peer;
    const std::size_t bytes = op.piece_bytes(op.asked);
    const posted how = op.is_put()                              ? send_put(op, bytes)
                       : op.what == rma_operation::kind::atomic ? send_atomic(op)
                                                                : send_get(op, bytes);
    if (how == posted::full) return how;
    op.asked += bytes;
    ++op.pieces_asked;
    ++peer.unanswered;
    if (op.all_asked()) list_as_asked(op);
    return how;
}

posted rma_initiator::send_put(rma_operation& op, std::size_t bytes) noexcept {
    peer_record& peer = *op.peer;
    lent_piece* piece = pieces_.take();
    const segment_cursor before = op.at;
    const bool notifies = op.notifies && op.asked + bytes == op.total;
    const std::size_t head = notifies ? rma_notify_bytes : rma_request_bytes;
    try {
        if (piece == nullptr) throw std::bad_alloc();
        piece->segments.emplace_back(piece->head.data(), head);
        slice(op.from, op.at, bytes, piece->segments);
    } catch (const std::bad_alloc&) {
        if (piece != nullptr) pieces_.give_back(*piece);
        if (stop(op, {errc::no_memory})) completions_.push(retire(op), {errc::no_memory}, 0);
        return posted::full;
    }
    // If the link will copy the data, read it now, by a copy that cannot fault. A longer frame is
    // borrowed.
    const std::byte* const theirs = bytes == 0 ? nullptr : piece->segments[1].data();
    if (head + bytes <= limits::max_copy_bytes && !memory_.fetch_small(piece->segments, 1, bytes)) {
        pieces_.give_back(*piece);
        if (stop(op, no_access)) completions_.push(retire(op), no_access, 0);
        return posted::full;
    }
    const bool fetched = bytes != 0 && piece->segments[1].data() != theirs;
    write_request(piece->head.data(), {op.key, op.offset + op.asked, bytes});
    piece->operation = &op;

    mark(*piece, op_kind::piece, &peer);
    frame_header header = header_of(frame_kind::put, op.id, head + bytes);
    if (notifies) [[unlikely]] {
        header.kind = frame_kind::put_notify;
        write_request(piece->head.data(), {op.key, op.offset, op.whole});
        store_le(piece->head.data() + rma_request_bytes, op.notice);
        piece->notifies = true;
    }
    posted how = peer.link->send(header, piece->segments, piece);
    if (how == posted::pending && fetched) {
        // The link borrows this one after all, as it is not connected yet. The fetched copy is in
        // memory that the next transfer overwrites, so lend it the user's memory instead.
        if (peer.link->forget(*piece)) {
            piece->segments.resize(1);  // No allocation: it has held all of these before.
            segment_cursor at = before;
            slice(op.from, at, bytes, piece->segments);
            how = peer.link->send(header, piece->segments, piece);
        } else {
            peer.link->detach(*piece);
            how = peer.up() ? posted::done : posted::full;
        }
    }
    if (notifies) [[unlikely]]
        op.notice_left = how != posted::full;
    if (how == posted::pending) {
        peer.sends.append(*piece);
        ++op.pieces_lent;
        return how;
    }
    pieces_.give_back(*piece);
    if (how == posted::full) op.at = before;
    return how;
}

posted rma_initiator::send_atomic(rma_operation& op) noexcept {
    std::byte request[rma_compare_swap_bytes];
    const auto key = op.key.encode();
    std::copy(key.begin(), key.end(), request);
    store_le(request + key.size(), op.offset);
    store_le(request + rma_place_bytes, op.operand);
    store_le(request + rma_fetch_add_bytes, op.desired);
    const bool adds = op.atomic == atomic_operation::kind::fetch_add;
    const const_bytes payload(request, adds ? rma_fetch_add_bytes : rma_compare_swap_bytes);
    const frame_kind kind = adds ? frame_kind::fetch_add : frame_kind::compare_swap;
    return op.peer->link->send(header_of(kind, op.id, payload.size()), {&payload, 1}, nullptr);
}

posted rma_initiator::send_get(rma_operation& op, std::size_t bytes) noexcept {
    std::byte request[rma_request_bytes];
    write_request(request, {op.key, op.offset + op.asked, bytes});
    const const_bytes payload(request);
    return op.peer->link->send(header_of(frame_kind::get, op.id, rma_request_bytes), {&payload, 1},
                               nullptr);
}

delivery rma_initiator::on_done(peer_record& peer, const frame_header& header,
                                const_bytes payload) noexcept {
    if (payload.size() != rma_status_bytes) return delivery::malformed;
    if (peer.unanswered > 0) --peer.unanswered;
    rma_operation* op = find(peer, header.tag);
    status what = read_status(payload.data());
    if (what == no_access && what.native == EFAULT) what = no_access_there;
    if (op != nullptr && op->pieces_answered < op->pieces_asked) {
        if (what.ok() && !op->is_put())
            return delivery::malformed;  // Answered by data, or by what was there before.
        ++op->pieces_answered;
        if (!what.ok() && !op->stopped) {
            if (stop(*op, what)) completions_.finish(retire(*op), what, 0);
        } else if (op->is_quiet() && (op->stopped || op->all_asked())) {
            status why = op->why;
            // Canceled when all of it had left: the target was told, so it has succeeded.
            if (op->stopped && op->notice_left && what.ok() && why == status{errc::canceled})
                why = {};
            const std::uint64_t bytes = op->whole;
            completions_.finish(retire(*op), why, bytes);
        }
    }
    pump(peer);
    return delivery::taken;
}

rma_operation* rma_initiator::expect_data(peer_record& peer, const frame_header& header,
                                          std::uint64_t offset, bool& malformed) noexcept {
    malformed = false;
    if (peer.unanswered > 0) --peer.unanswered;
    rma_operation* op = find(peer, header.tag);
    if (op == nullptr) return nullptr;
    // Links are ordered and targets reply in order, so only one reply is valid.
    malformed = op->what != rma_operation::kind::get || op->pieces_answered == op->pieces_asked ||
                offset != op->offset + op->landed ||
                header.bytes != rma_data_prefix_bytes + op->piece_bytes(op->landed);
    return malformed ? nullptr : op;
}

delivery rma_initiator::on_data(peer_record& peer, const frame_header& header,
                                const_bytes payload) noexcept {
    if (payload.size() < rma_data_prefix_bytes) return delivery::malformed;
    bool malformed = false;
    rma_operation* op =
        expect_data(peer, header, load_le<std::uint64_t>(payload.data()), malformed);
    if (malformed) return delivery::malformed;
    if (op != nullptr) {
        const const_bytes data = payload.subspan(rma_data_prefix_bytes);
        if (memory_.copy_in(op->into, op->at, data))
            data_arrived(*op, data.size());
        else
            completions_.finish(retire(*op), no_access, 0);
    }
    pump(peer);
    return delivery::taken;
}

bool rma_initiator::begin_data(peer_record& peer, const frame_header& header,
                               const_bytes prefix) noexcept {
    if (prefix.size() < rma_data_prefix_bytes) return false;
    bool malformed = false;
    rma_operation* op = expect_data(peer, header, load_le<std::uint64_t>(prefix.data()), malformed);
    if (malformed) return false;
    placement_state& placement = peer.placement;
    placement.what = placement_state::kind::get;
    placement.operation = op;
    if (op == nullptr) {
        placement.drop();
        return true;
    }
    const const_bytes data = prefix.subspan(rma_data_prefix_bytes);
    if (!memory_.copy_in(op->into, op->at, data)) {
        fail(*op, no_access);
        placement.drop();
        return true;
    }
    try {
        slice(op->into, op->at, op->piece_bytes(op->landed) - data.size(), placement.segments);
    } catch (const std::bad_alloc&) {
        completions_.push(retire(*op), {errc::no_memory}, 0);
        placement.drop();
        return true;
    }
    placement.shown.into = placement.segments;
    return true;
}

void rma_initiator::end_data(peer_record& peer) noexcept {
    rma_operation* op = peer.placement.operation;
    peer.placement.operation = nullptr;
    if (op != nullptr) data_arrived(*op, op->piece_bytes(op->landed));
    pump(peer);
}

delivery rma_initiator::on_fetched(peer_record& peer, const frame_header& header,
                                   const_bytes payload) noexcept {
    if (payload.size() != rma_fetched_bytes) return delivery::malformed;
    if (peer.unanswered > 0) --peer.unanswered;
    rma_operation* op = find(peer, header.tag);
    if (op != nullptr) {
        if (op->what != rma_operation::kind::atomic || op->is_quiet()) return delivery::malformed;
        if (op->old != nullptr) *op->old = load_le<std::uint64_t>(payload.data());
        completions_.finish(retire(*op), {}, atomic_operation::bytes);
    }
    pump(peer);
    return delivery::taken;
}

void rma_initiator::data_arrived(rma_operation& op, std::size_t bytes) noexcept {
    op.landed += bytes;
    ++op.pieces_answered;
    if (op.landed < op.total) return;
    const std::uint64_t whole = op.whole;
    completions_.finish(retire(op), {}, whole);
}

void rma_initiator::cancel(completion& user) noexcept {
    auto& op = *reinterpret_cast<rma_operation*>(user.port_words[1]);
    peer_record& peer = *op.peer;
    if (op.stopped) return;
    if (stop(op, {errc::canceled})) completions_.finish(retire(op), {errc::canceled}, 0);
    pump(peer);
}

/// Sends no more of it. True: it may end now. False: it ends with its last reply, or was ended with
/// the connection.
bool rma_initiator::stop(rma_operation& op, status why) noexcept {
    if (!op.is_put()) return true;
    op.stopped = true;
    op.why = why;
    if (!op.listed_asked) list_as_asked(op);
    // A notice that the link has copied leaves, and so must all that is before it.
    const bool must_be_true = why == errc::canceled && op.notice_left && !notice_is_lent(op);
    if (!must_be_true) take_back(op, keep::begun_notice);
    return op.peer->up() && op.is_quiet();
}

/// Whether its last piece, with the notice, is in memory that the link borrows.
bool rma_initiator::notice_is_lent(const rma_operation& op) noexcept {
    completion* one = op.pieces_lent > 0 ? op.peer->sends.first() : nullptr;
    for (; one != nullptr; one = one->port_next) {
        if (kind_of(*one) != op_kind::piece) continue;
        const auto& piece = static_cast<const lent_piece&>(*one);
        if (piece.operation == &op && piece.notifies) return true;
    }
    return false;
}

void rma_initiator::list_as_asked(rma_operation& op) noexcept {
    op.peer->to_ask.remove(op);
    op.peer->asked.append(op);
    op.listed_asked = true;
}

void rma_initiator::sent(lent_piece& piece) noexcept {
    if (piece.operation != nullptr) --piece.operation->pieces_lent;
    pieces_.give_back(piece);
}

void rma_initiator::unreadable(lent_piece& piece, status why, bool left) noexcept {
    rma_operation& op = *piece.operation;
    --op.pieces_lent;
    if (piece.notifies) op.notice_left = false;
    if (!op.stopped) {
        op.stopped = true;
        op.why = why;
        if (!op.listed_asked) list_as_asked(op);
    }
    pieces_.give_back(piece);
    if (left) return;
    if (op.peer->unanswered > 0) --op.peer->unanswered;
    --op.pieces_asked;
    if (op.is_quiet()) fail(op, op.why);
}

void rma_initiator::fail(rma_operation& op, status why) noexcept {
    completions_.push(retire(op), why, 0);
}

void rma_initiator::peer_down(peer_record& peer, status why) noexcept {
    while (rma_operation* op = peer.to_ask.first())
        completions_.push(retire(*op), why, 0);
    while (rma_operation* op = peer.asked.first())
        completions_.push(retire(*op), why, 0);
    peer.unanswered = 0;
}

completion& rma_initiator::retire(rma_operation& op) noexcept {
    peer_record& peer = *op.peer;
    completion& user = *op.user;
    (op.listed_asked ? peer.asked : peer.to_ask).remove(op);
    if (peer.placement.operation == &op) {
        peer.placement.operation = nullptr;
        peer.placement.drop();
    }
    const std::uint64_t id = std::exchange(op.id, 0);
    op.user = nullptr;
    if (peer.up()) take_back(op, keep::nothing);
    ids_.give_back(id);
    return user;
}

/// Takes back pieces that the link borrows. A piece with a notice that has begun may be kept, as
/// the rest of its memory must still be read: what tells the target must be right.
void rma_initiator::take_back(rma_operation& op, keep what) noexcept {
    peer_record& peer = *op.peer;
    completion* next = peer.sends.first();
    while (op.pieces_lent > 0 && next != nullptr) {
        completion* one = next;
        next = one->port_next;
        if (kind_of(*one) != op_kind::piece) continue;
        auto& piece = static_cast<lent_piece&>(*one);
        if (piece.operation != &op) continue;
        const bool forgotten = peer.link->forget(piece);
        if (!forgotten && piece.notifies && what == keep::begun_notice) continue;
        peer.sends.remove(piece);
        --op.pieces_lent;
        if (forgotten) {
            if (piece.notifies) op.notice_left = false;
            // It was never sent, so no reply will come, unless the peer fabricates one.
            if (peer.unanswered > 0) --peer.unanswered;
            --op.pieces_asked;
        } else {
            peer.link->detach(piece);
        }
        pieces_.give_back(piece);
        // Running out of memory in detach() ends the connection and with it all other entries.
        if (!peer.up()) return;
    }
}

}  // namespace amalgam::detail
