#include "rpc/memory/transfer_table.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/in_words.hpp>

#include "rpc/context/engine_context.hpp"
#include "rpc/limits.hpp"
#include "rpc/statistics/counted_transfer.hpp"
#include "rpc/tracing/call_span.hpp"

namespace amalgam::detail {

namespace {

/// Whether the connection, or our end of it, is gone.
bool is_loss(errc code) noexcept {
    return code == errc::disconnected || code == errc::unreachable || code == errc::closed;
}

std::string_view advice(status what) noexcept {
    switch (what.code) {
        case errc::invalid:
            if (what.native == EFAULT)
                return "the local memory cannot be accessed: a mapped file was truncated, or the "
                       "pages' protection forbids it";
            if (what.native == EREMOTEIO)
                return "the peer's memory cannot be accessed: a mapped file was truncated, or the "
                       "pages' protection forbids it";
            return "the transfer failed";
        case errc::timed_out:
            return "the deadline passed; allow more time";
        case errc::canceled:
            return "the transfer was canceled";
        case errc::closed:
            return "the engine has stopped; create a new one";
        case errc::unreachable:
            return "no answer at this address; check that the process is running";
        case errc::disconnected:
            return "the peer and its memory are gone";
        case errc::denied:
            return "the peer does not expose this memory, or no longer does, or, over tcp+tls, "
                   "sent it to somebody else and did not say shareable; request a new descriptor";
        case errc::no_memory:
            return "out of memory";
        default:
            return "the transfer failed";
    }
}

}  // namespace

void transfer_table::open(std::span<const std::unique_ptr<port>> ports) {
    for (const std::unique_ptr<port>& each : ports)
        ports_.push_back(each.get());
    lists_.resize(ports_.size() + 1);
    at_ports_.resize(ports_.size());
}

/// Why it cannot start; null if it can.
const char* transfer_table::refuse(const transfer_record& mine, status& what) const noexcept {
    what = {errc::invalid};
    if (closed_) {
        what = {errc::closed};
        return "";
    }
    if (mine.canceled_early_) {
        what = {errc::canceled};
        return "";
    }
    if (!mine.there_) return "the peer is empty; get one from engine::lookup()";
    if (!context_.owns(mine.there_)) {
        return "the peer belongs to another engine; look up its address with this engine";
    }
    if (mine.offset_ > mine.key_.bytes || mine.total_ > mine.key_.bytes - mine.offset_) {
        return "the range is out of bounds of the peer's memory; request a shorter one";
    }
    if (!allows(mine.key_.rights, mine.is_put_ ? access::write : access::read)) {
        what = {errc::denied};
        return mine.is_put_ ? "the memory is exposed for reading only; expose it for writing"
                            : "the memory is exposed for writing only; expose it for reading";
    }
    what = {};
    return nullptr;
}

void transfer_table::begin(transfer_record& mine) noexcept {
    using state = transfer_record::state;
    status what;
    const char* const wrong = refuse(mine, what);
    peer_state* const there = wrong == nullptr ? peers_.find(mine.there_) : nullptr;
    const char* text = wrong == nullptr ? "" : wrong;
    if (wrong == nullptr && there == nullptr) {
        what = addresses_.why_lost(mine.there_);
        if (what == errc::denied) text = peer_addresses::sentence_of_lost(what.code);
    } else if (wrong == nullptr && context_.now() >= mine.deadline_) {
        what = {errc::timed_out};
        text = "the deadline passed before the transfer started";
    }
    if (!what.ok()) {
        counts_.failed.add();
        explain(mine, what, text);
        mine.state_ = state::ended;
        record(mine);
        return mine.over();
    }
    counts_.begun.add();
    ++pending_;
    link(mine, *there);
    if (mine.deadline_ != clock::time_point::max()) arm(mine);
    if (mine.total_ == 0) return end(mine, {});
    advance(mine);
}

void transfer_table::link(transfer_record& mine, peer_state& there) noexcept {
    mine.state_ = transfer_record::state::running;
    mine.peer_ = &there;
    mine.previous_of_peer_ = nullptr;
    mine.next_of_peer_ = std::exchange(there.transfers, &mine);
    if (mine.next_of_peer_ != nullptr) mine.next_of_peer_->previous_of_peer_ = &mine;
}

/// Removes it from every list: no timer, loss or turn finds it afterwards.
void transfer_table::unlink(transfer_record& mine) noexcept {
    transfer_record* const next = mine.next_of_peer_;
    transfer_record* const previous = mine.previous_of_peer_;
    if (next != nullptr) next->previous_of_peer_ = previous;
    (previous != nullptr ? previous->next_of_peer_ : mine.peer_->transfers) = next;
    stop_waiting(mine);
    mine.timer_.reset();
}

void transfer_table::wait(transfer_record& mine, bool for_its_turn) noexcept {
    waiting_list& those = list_of(static_cast<std::uint16_t>(mine.there_.port()));
    mine.waiting_ = true;
    mine.its_turn_ = for_its_turn;
    mine.next_waiting_ = nullptr;
    mine.previous_waiting_ = std::exchange(those.last, &mine);
    (mine.previous_waiting_ != nullptr ? mine.previous_waiting_->next_waiting_ : those.first) =
        &mine;
    ++waiting_;
    runnable_ += for_its_turn ? 1 : 0;
}

void transfer_table::stop_waiting(transfer_record& mine) noexcept {
    if (!std::exchange(mine.waiting_, false)) return;
    waiting_list& those = list_of(static_cast<std::uint16_t>(mine.there_.port()));
    transfer_record* const next = mine.next_waiting_;
    transfer_record* const previous = mine.previous_waiting_;
    (previous != nullptr ? previous->next_waiting_ : those.first) = next;
    (next != nullptr ? next->previous_waiting_ : those.last) = previous;
    --waiting_;
    runnable_ -= mine.its_turn_ ? 1 : 0;
}

std::size_t transfer_table::flush(waiting_list& those) noexcept {
    // One turn each: transfers that wait again queue behind the current last one.
    std::size_t moved = 0;
    transfer_record* const last = those.last;
    while (transfer_record* const mine = those.first) {
        const bool is_last = mine == last;
        stop_waiting(*mine);
        moved += advance(*mine);  // It may be gone afterwards.
        if (is_last) break;
    }
    return moved;
}

void transfer_table::arm(transfer_record& mine) {
    mine.timer_.emplace(context_.stream(), [](timer& self) noexcept {
        transfer_record& late = *static_cast<transfer_timer&>(self).transfer;
        transfers_of(*late.core_).end(late, {errc::timed_out});
    });
    mine.timer_->transfer = &mine;
    mine.timer_->arm(mine.deadline_);
}

/// Posts what fits. Returns how many pieces completed at once.
std::size_t transfer_table::advance(transfer_record& mine) noexcept {
    ++mine.held_;
    std::size_t pieces = 0;
    std::size_t copied = 0;
    const auto window = static_cast<unsigned>(std::clamp<std::size_t>(
        limits::transfer_window_bytes / mine.piece_bytes_, 2, limits::max_transfer_window));
    while (mine.state_ == transfer_record::state::running && mine.asked_ < mine.total_ &&
           mine.at_port_ < window) {
        const std::uint64_t before = mine.asked_;
        const step what = post_piece(mine);
        if (what == step::stuck) break;
        if (what == step::full) {
            wait(mine, false);
            break;
        }
        if (what == step::posted) continue;
        ++pieces;
        copied += static_cast<std::size_t>(mine.asked_ - before);
        arrived(mine, static_cast<std::size_t>(mine.asked_ - before));
        if (copied >= limits::transfer_turn_bytes &&
            mine.state_ == transfer_record::state::running) {
            wait(mine, true);
            break;
        }
    }
    let_go(mine);
    return pieces;
}

transfer_table::step transfer_table::post_piece(transfer_record& mine) noexcept {
    transfer_piece* const piece = take_piece();
    if (piece == nullptr) {
        end(mine, {errc::no_memory});
        return step::stuck;
    }
    const std::size_t segment = mine.segment_;
    const std::size_t within = mine.within_;
    fill(mine, *piece);
    const std::uint64_t at = mine.offset_ + mine.asked_;
    posted how = posted::done;
    if (mine.there_.is_self()) {
        if (!copy_own(mine, *piece)) {
            give_back(*piece);
            end(mine, {errc::denied});
            return step::stuck;
        }
    } else {
        port& where = *ports_[mine.there_.port()];
        const peer_id id = mine.there_.id();
        how = mine.is_put_
                  ? where.post_put(id, {piece->from.data(), piece->count}, mine.key_, at, *piece)
                  : where.post_get(id, {piece->into.data(), piece->count}, mine.key_, at, *piece);
        one_sided_counts& counts = at_ports_[mine.there_.port()];
        ++(how == posted::full ? counts.retries : mine.is_put_ ? counts.puts : counts.gets);
    }
    if (how == posted::full) {
        mine.segment_ = segment;
        mine.within_ = within;
        give_back(*piece);
        return step::full;
    }
    mine.asked_ += piece->bytes;
    if (how == posted::done) {
        give_back(*piece);
        return step::moved;
    }
    piece->next = std::exchange(mine.pieces_, piece);
    ++mine.at_port_;
    return step::posted;
}

/// The next slice of the local list.
void transfer_table::fill(transfer_record& mine, transfer_piece& piece) noexcept {
    const auto limit = static_cast<std::size_t>(
        std::min<std::uint64_t>(mine.piece_bytes_, mine.total_ - mine.asked_));
    piece.whose = &mine;
    piece.bytes = 0;
    piece.count = 0;
    piece.canceled = false;
    while (piece.bytes < limit && piece.count < limits::max_piece_segments) {
        const std::size_t length =
            mine.is_put_ ? mine.from_[mine.segment_].size() : mine.into_[mine.segment_].size();
        const std::size_t take = std::min(length - mine.within_, limit - piece.bytes);
        if (take != 0) {
            if (mine.is_put_) {
                piece.from[piece.count] = mine.from_[mine.segment_].subspan(mine.within_, take);
            } else {
                piece.into[piece.count] = mine.into_[mine.segment_].subspan(mine.within_, take);
            }
            ++piece.count;
            piece.bytes += take;
            mine.within_ += take;
        }
        if (mine.within_ == length) {
            ++mine.segment_;
            mine.within_ = 0;
        }
    }
}

/// Copies within this process. False: that memory is no longer exposed.
bool transfer_table::copy_own(transfer_record& mine, const transfer_piece& piece) noexcept {
    std::uint64_t at = mine.offset_ + mine.asked_;
    const exposure* const shown =
        own_.find(mine.key_, at, piece.bytes, mine.is_put_ ? access::write : access::read);
    if (shown == nullptr) return false;
    auto segment = shown->segments().begin();
    while (at >= segment->size()) {
        at -= segment->size();
        ++segment;
    }
    std::size_t within = static_cast<std::size_t>(at);
    for (std::size_t i = 0; i < piece.count; ++i) {
        const std::size_t length = mine.is_put_ ? piece.from[i].size() : piece.into[i].size();
        for (std::size_t done = 0; done < length;) {
            const std::size_t take = std::min(length - done, segment->size() - within);
            std::byte* const there = segment->data() + within;
            // Both may be the same memory.
            if (take != 0 && mine.is_put_) std::memmove(there, piece.from[i].data() + done, take);
            if (take != 0 && !mine.is_put_) std::memmove(piece.into[i].data() + done, there, take);
            done += take;
            within += take;
            if (within == segment->size()) {
                ++segment;
                within = 0;
            }
        }
    }
    return true;
}

transfer_piece* transfer_table::take_piece() noexcept {
    if (free_pieces_ == nullptr) {
        try {
            all_pieces_.push_back(std::make_unique<transfer_piece>());
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
        return all_pieces_.back().get();
    }
    return std::exchange(free_pieces_, free_pieces_->next);
}

void transfer_table::give_back(transfer_piece& piece) noexcept {
    piece.next = std::exchange(free_pieces_, &piece);
}

bool transfer_table::is_at_rest() const noexcept {
    std::size_t free = 0;
    for (const transfer_piece* each = free_pieces_; each != nullptr; each = each->next)
        ++free;
    return pending_ == 0 && waiting_ == 0 && runnable_ == 0 && free == all_pieces_.size();
}

void transfer_table::arrived(transfer_record& mine, std::size_t bytes) noexcept {
    mine.moved_ += bytes;
    counts_.bytes.add(bytes);
    const engine_context::busy callbacks_run(context_);
    const failure why = mine.progressed();
    context_.stay_in_parent();
    if (!why.what.ok()) return end(mine, why.what, why.sentence);
    if (mine.moved_ == mine.total_) end(mine, {});
}

void transfer_piece::on_done(completion& self, status what, std::size_t) noexcept {
    auto& piece = static_cast<transfer_piece&>(self);
    transfers_of(*piece.whose->core_).piece_done(piece, what);
}

void transfer_table::piece_done(transfer_piece& piece, status what) noexcept {
    // We disconnected the peer; nobody stopped the engine.
    if (what == errc::closed && !closed_) what = {errc::disconnected, what.native};
    transfer_record& mine = *piece.whose;
    transfer_piece** at = &mine.pieces_;
    while (*at != &piece)
        at = &(*at)->next;
    *at = piece.next;
    const std::size_t bytes = piece.bytes;
    give_back(piece);
    --mine.at_port_;
    ++mine.held_;
    if (mine.state_ == transfer_record::state::running) {
        if (!what.ok()) {
            end(mine, what);
        } else {
            arrived(mine, bytes);
            if (mine.state_ == transfer_record::state::running && !mine.waiting_) advance(mine);
        }
    } else if (mine.is_put_ && is_loss(what.code) && !is_loss(mine.why.what.code)) {
        explain(mine, {errc::disconnected, what.native},
                "the connection ended before the peer confirmed that writing has ended; data it "
                "has received may still be written");
    }
    let_go(mine);
}

void transfer_table::end(transfer_record& mine, status what, std::string_view text) noexcept {
    if (mine.state_ != transfer_record::state::running) return;
    ++mine.held_;
    mine.state_ = transfer_record::state::ended;
    if (!what.ok()) {
        counts_.failed.add();
        explain(mine, what, text);
    }
    unlink(mine);
    // Canceling may end its piece at once, or later; it may not affect others.
    for (transfer_piece* each = mine.pieces_; each != nullptr;) {
        if (std::exchange(each->canceled, true)) {
            each = each->next;
            continue;
        }
        ports_[mine.there_.port()]->cancel(*each);
        each = mine.pieces_;
    }
    if (mine.at_port_ != 0) limit_wait(mine);
    let_go(mine);
}

/// The rest ends when the peer has answered. An unresponsive peer is disconnected at the silence
/// limit, which bounds the wait.
void transfer_table::limit_wait(transfer_record& mine) noexcept {
    mine.timer_.emplace(context_.stream(), [](timer& self) noexcept {
        transfer_record& stuck = *static_cast<transfer_timer&>(self).transfer;
        transfers_of(*stuck.core_).cut_off(stuck);
    });
    mine.timer_->transfer = &mine;
    mine.timer_->arm(context_.now() + silence_limit_);
}

void transfer_table::cut_off(transfer_record& stuck) noexcept {
    ports_[stuck.there_.port()]->close(stuck.there_.id());
}

void transfer_table::record(const transfer_record& mine) noexcept {
    if (mine.counted_ != nullptr)
        mine.counted_->end(mine.is_put_, mine.total_, mine.there_, mine.why.what);
    if (mine.span_ == nullptr) [[likely]]
        return;
    mine.span_->end(mine.is_put_, mine.total_, mine.there_, mine.why.what);
}

void transfer_table::let_go(transfer_record& mine) noexcept {
    if (--mine.held_ != 0 || mine.at_port_ != 0 || mine.state_ != transfer_record::state::ended)
        return;
    --pending_;
    mine.timer_.reset();  // The owner may keep the record.
    const engine_context::busy callbacks_run(context_);
    record(mine);
    mine.over();
    context_.stay_in_parent();
    context_.look_whether_quiet();
}

void transfer_table::let_go() noexcept {
    --pending_;
    context_.look_whether_quiet();
}

void transfer_table::cancel(transfer_record& mine) noexcept {
    if (mine.state_ == transfer_record::state::fresh) {
        mine.canceled_early_ = true;  // Still being handed over; begin() checks this.
    } else {
        end(mine, {errc::canceled});
    }
    mine.release();
}

void transfer_table::on_peer_down(peer_state& gone, status why) noexcept {
    while (gone.transfers != nullptr)
        end(*gone.transfers, why);
}

void transfer_table::close() noexcept {
    closed_ = true;
    peers_.for_each([this](peer_state& each) { on_peer_down(each, {errc::closed}); });
}

void transfer_table::explain(transfer_record& mine, status what, std::string_view text) noexcept {
    if (text.empty()) text = advice(what);
    mine.why = in_words(what, [&] {
        std::string all =
            fmt::format("transfer of {} bytes {} {}: {}", mine.total_, mine.is_put_ ? "to" : "from",
                        addresses_.text_of(mine.there_), text);
        const std::string_view why = addresses_.reason(mine.there_, what);
        return why.empty() ? all : fmt::format("{} ({})", all, why);
    });
}

}  // namespace amalgam::detail
