#include "fabric/one_sided/transfers.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace amalgam::detail {

direct_transfers::direct_transfers(one_sided_carrier& carrier, one_sided_home& home,
                                   peer_keys& keys, local_memory& memory)
    : carrier_(carrier),
      home_(home),
      keys_(keys),
      memory_(memory),
      facts_(carrier.one_sided_traits()) {
    carrier_.start_one_sided(*this);
}

// ---- beginning

/// One free operation, and pieces for its window.
bool direct_transfers::make_room() noexcept try {
    if (free_operations_.empty()) {
        const std::size_t count = all_operations_.size() + 1;
        for (auto* list : {&free_operations_, &waiting_, &leaving_})
            if (list->capacity() < count) list->reserve(2 * count);
        all_operations_.push_back(std::make_unique<direct_operation>());
        free_operations_.push_back(all_operations_.back().get());
    }
    return true;
} catch (const std::bad_alloc&) {
    return false;
}

/// nullptr: packets must carry it.
direct_operation* direct_transfers::take(one_sided_peer& peer, const remote_key& key,
                                         std::uint64_t offset, std::size_t total,
                                         completion& user) noexcept {
    known_key* known = total == 0 ? nullptr : keys_.find(peer, key);
    if (known == nullptr || !make_room()) return nullptr;
    direct_operation& op = *free_operations_.back();
    op = {};
    op.user = &user;
    op.peer = &peer;
    op.key = known;
    op.remote = key;
    op.offset = offset;
    op.left = op.total = total;
    return &op;
}

std::optional<direct_transfers::begun> direct_transfers::begin(one_sided_peer& peer,
                                                               gather put_from,
                                                               const remote_key& key,
                                                               std::uint64_t offset,
                                                               completion& user) noexcept {
    direct_operation* op = take(peer, key, offset, total_bytes(put_from), user);
    if (op == nullptr) return std::nullopt;
    op->is_put = true;
    op->from = put_from;
    return launch(*op);
}

std::optional<direct_transfers::begun> direct_transfers::begin(one_sided_peer& peer,
                                                               scatter get_into,
                                                               const remote_key& key,
                                                               std::uint64_t offset,
                                                               completion& user) noexcept {
    direct_operation* op = take(peer, key, offset, total_bytes(get_into), user);
    if (op == nullptr) return std::nullopt;
    op->into = get_into;
    return launch(*op);
}

bool direct_transfers::queue_notice(one_sided_peer& peer, gather from, const remote_key& key,
                                    std::uint64_t offset, std::uint64_t notice,
                                    completion& user) noexcept {
    if (!make_room()) return false;
    direct_operation& op = *free_operations_.back();
    free_operations_.pop_back();
    op = {};
    op.user = &user;
    op.peer = &peer;
    op.remote = key;
    op.is_put = op.notifies = op.by_packets = true;
    op.notice = notice;
    op.from = from;
    op.offset = offset;
    op.left = op.total = total_bytes(from);
    user.port_words[1] = reinterpret_cast<std::uintptr_t>(&op);
    peer.operations.append(op);
    return true;
}

std::optional<direct_transfers::begun> direct_transfers::launch(direct_operation& op) noexcept {
    free_operations_.pop_back();
    peer_keys::use(*op.key);
    op.peer->operations.append(op);
    go_on(op);
    // Also if some was copied: packets write the same bytes.
    if (op.by_packets && op.held == 0) {
        retire(op);
        return std::nullopt;
    }
    if (!is_over(op)) {
        op.user->port_words[1] = reinterpret_cast<std::uintptr_t>(&op);
        return begun{};
    }
    const begun over{posted::done, op.why};
    retire(op);
    return over;
}

void direct_transfers::go_on(direct_operation& op) noexcept {
    while (op.left > 0 && !op.stopped && !op.by_packets && op.held < facts_.window)
        if (!begin_piece(op)) return wait(op);
}

/// Local memory, the key's segment and the carrier's limit each bound a piece.
void direct_transfers::prepare(direct_operation& op, one_sided_transfer& piece) noexcept {
    const known_segment& there = peer_keys::segment_at(*op.key, op.offset);
    std::uint64_t bytes = std::min<std::uint64_t>(op.left, facts_.piece_bytes);
    bytes = std::min(bytes, there.start + there.bytes - op.offset);
    const auto here = [&](auto segments) {
        while (segments[op.at.index].size() == op.at.within)
            op.at = {op.at.index + 1, 0};
        const auto rest = segments[op.at.index].subspan(op.at.within);
        bytes = std::min<std::uint64_t>(bytes, rest.size());
        return const_cast<std::byte*>(rest.data());
    };
    piece.is_put = op.is_put;
    piece.here = op.is_put ? here(op.from) : here(op.into);
    piece.bytes = static_cast<std::size_t>(bytes);
    piece.key = there.key;
    piece.offset = op.offset - there.start;
    piece.region = &op.remote;
    piece.operation = &op;
}

/// The whole segment at once, for all of its pieces. False: it cannot be registered.
bool direct_transfers::pin(direct_operation& op, one_sided_transfer& piece) noexcept {
    if (op.pinned == nullptr || !op.pinned->holds({piece.here, piece.bytes})) {
        if (op.pinned != nullptr) memory_.leave(*std::exchange(op.pinned, nullptr));
        const std::size_t segment =
            op.is_put ? op.from[op.at.index].size() : op.into[op.at.index].size();
        const auto pinned = memory_.use({piece.here, segment - op.at.within});
        if (!pinned) return false;
        op.pinned = pinned.value();
    }
    ++op.pinned->uses;
    piece.pinned = op.pinned;
    piece.memory = op.pinned->registered;
    return true;
}

/// False: the carrier has no room.
bool direct_transfers::begin_piece(direct_operation& op) noexcept {
    if (free_pieces_.empty()) try {
            const std::size_t count = all_pieces_.size() + 1;
            if (free_pieces_.capacity() < count) free_pieces_.reserve(2 * count);
            all_pieces_.push_back(std::make_unique<one_sided_transfer>());
            free_pieces_.push_back(all_pieces_.back().get());
        } catch (const std::bad_alloc&) {
            op.by_packets = true;
            return true;
        }
    one_sided_transfer& piece = *free_pieces_.back();
    piece = {};
    prepare(op, piece);
    if (facts_.registers_memory) {
        if (!pin(op, piece)) {
            op.by_packets = true;
            return true;
        }
    }
    free_pieces_.pop_back();
    const std::uint64_t bytes = piece.bytes;
    const posted how = carrier_.start(op.peer->by, piece);
    if (how == posted::pending) {
        op.pieces.append(piece);
        ++op.held;
        ++op.peer->held;
        ++held_;
    } else {
        take_back(piece);
    }
    if (how == posted::full) return false;
    if (how == posted::done && !piece.how.ok()) {
        if (piece.how == errc::unsupported)
            op.by_packets = true;
        else
            stop(op, piece.how);
        return true;
    }
    op.left -= bytes;
    op.offset += bytes;
    op.at.within += bytes;
    return true;
}

void direct_transfers::wait(direct_operation& op) noexcept {
    ++refused_;
    if (std::exchange(op.waits, true)) return;
    waiting_.push_back(&op);  // There is capacity for all.
}

/// Once the carrier holds nothing of it. Not at once: this may be an upcall of the carrier's.
void direct_transfers::leave_to_packets(direct_operation& op) noexcept {
    if (std::exchange(op.leaves, true)) return;
    leaving_.push_back(&op);  // There is capacity for all.
}

void direct_transfers::hand_over(direct_operation& op) noexcept {
    const rma_rest rest{op.is_put, op.notifies, op.notice, op.from, op.into,
                        op.at,     op.remote,   op.offset, op.left, op.total};
    completion& user = *op.user;
    one_sided_peer& peer = *op.peer;
    retire(op);
    home_.go_on_by_packets(peer, rest, user);
}

/// What follows when a piece has ended or could not begin.
void direct_transfers::look_at(direct_operation& op) noexcept {
    if (is_over(op))
        end(op);
    else if (op.by_packets && !op.stopped && op.held == 0)
        leave_to_packets(op);
}

/// One that notifies goes when no operation is before it.
void direct_transfers::look_at_notices(one_sided_peer& peer) noexcept {
    direct_operation* first = peer.operations.first();
    if (first != nullptr && first->notifies && !first->stopped) leave_to_packets(*first);
}

void direct_transfers::pump() noexcept {
    while (!leaving_.empty())
        hand_over(*leaving_.front());
    // One that the carrier still has no room for puts itself back.
    for (std::size_t count = waiting_.size(); count > 0; --count) {
        direct_operation& op = *waiting_.front();
        waiting_.erase(waiting_.begin());
        op.waits = false;
        go_on(op);
        if (op.waits) return;
        look_at(op);
    }
}

/// What waits was refused, and a transfer to the same peer will end and wake the port.
bool direct_transfers::may_sleep() const noexcept {
    return leaving_.empty() && refused_ >= waiting_.size() &&
           std::all_of(waiting_.begin(), waiting_.end(),
                       [](const direct_operation* op) { return op->peer->held > 0; });
}

// ---- ending

bool direct_transfers::is_over(const direct_operation& op) const noexcept {
    return op.held == 0 && (op.stopped || (op.left == 0 && !op.by_packets));
}

void direct_transfers::stop(direct_operation& op, status why) noexcept {
    if (!std::exchange(op.stopped, true)) op.why = why;
    leave_lists(op);
}

void direct_transfers::leave_lists(direct_operation& op) noexcept {
    if (std::exchange(op.waits, false)) {
        std::erase(waiting_, &op);
        refused_ = 0;
    }
    if (std::exchange(op.leaves, false)) std::erase(leaving_, &op);
}

/// The carrier no longer holds the piece, or never did.
void direct_transfers::take_back(one_sided_transfer& piece) noexcept {
    if (piece.pinned != nullptr) memory_.leave(*static_cast<pinned_memory*>(piece.pinned));
    free_pieces_.push_back(&piece);  // There is capacity for all.
}

/// Asks the carrier for every piece of a stopped operation. Does not end it.
void direct_transfers::let_go(direct_operation& op) noexcept {
    ++op.held;
    for (one_sided_transfer* each = op.pieces.first(); each != nullptr;) {
        one_sided_transfer& piece = *std::exchange(each, each->next);
        carrier_.let_go(piece);
    }
    --op.held;
}

void direct_transfers::finished(one_sided_transfer& piece, status how) noexcept {
    auto& op = *static_cast<direct_operation*>(piece.operation);
    op.pieces.remove(piece);
    --op.held;
    --op.peer->held;
    --held_;
    refused_ = 0;
    take_back(piece);
    if (how.ok()) {
        go_on(op);
    } else if (!op.stopped) {
        stop(op, how);
        let_go(op);
    }
    look_at(op);
}

void direct_transfers::end(direct_operation& op) noexcept {
    completion* user = op.user;
    one_sided_peer& peer = *op.peer;
    const status why = op.why;
    const std::size_t bytes = op.total;
    retire(op);
    if (user != nullptr) home_.transfer_over(*user, why, bytes);
    if (!peer.up && peer.operations.empty()) home_.transfers_over(peer);
}

void direct_transfers::retire(direct_operation& op) noexcept {
    leave_lists(op);
    if (op.pinned != nullptr) memory_.leave(*op.pinned);
    op.peer->operations.remove(op);
    if (op.key != nullptr) keys_.leave(*op.peer, *op.key);
    free_operations_.push_back(&op);
    look_at_notices(*op.peer);
}

void direct_transfers::cancel(completion& user) noexcept {
    auto& op = *reinterpret_cast<direct_operation*>(user.port_words[1]);
    if (op.stopped) return;
    stop(op, {errc::canceled});
    let_go(op);
    if (is_over(op)) end(op);
}

bool direct_transfers::down(one_sided_peer& peer, status why,
                            clock::time_point gives_up_at) noexcept {
    peer.gives_up_at = gives_up_at;
    for (direct_operation* next = peer.operations.first(); next != nullptr;) {
        direct_operation& op = *std::exchange(next, next->next);
        stop(op, why);
        op.why = why;
        let_go(op);
        if (is_over(op)) end(op);
    }
    peer.up = false;
    return peer.operations.empty();
}

void direct_transfers::give_up(one_sided_peer& peer) noexcept {
    peer.given_up = true;
    for (direct_operation* op = peer.operations.first(); op != nullptr; op = op->next)
        if (completion* user = std::exchange(op->user, nullptr))
            home_.transfer_over(*user, op->why, 0);
}

void direct_transfers::drop(one_sided_peer& peer) noexcept {
    while (direct_operation* op = peer.operations.first()) {
        while (one_sided_transfer* piece = op->pieces.take_first()) {
            --peer.held;
            --held_;
            take_back(*piece);
        }
        retire(*op);
    }
}

}  // namespace amalgam::detail
