#include "rpc/peers/outbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <amalgam/core/detail/has_type.hpp>
#include <amalgam/core/detail/returned_child.hpp>

namespace amalgam::detail {

/// A message without completion: lives in front of its own bytes, in one buffer.
struct copied_message final : outgoing {
    explicit copied_message(buffer around) noexcept
        : outgoing(&copied_message::on_sent), home(std::move(around)) {}

    static void on_sent(completion& self, status what, std::size_t) noexcept {
        auto& me = static_cast<copied_message&>(self);
        if (!what.ok() && me.counts_loss != nullptr) me.counts_loss->add();
        if (me.owner != nullptr) {
            const ends_children of_the_owner;
            me.owner.reset();
        }
        destroy(me);
    }
    static void destroy(copied_message& self) noexcept {
        const buffer until_the_end = std::move(self.home);
        self.~copied_message();
    }

    buffer home;
    std::shared_ptr<const void> owner;  ///< Of a piece outside the buffer.
    owned_counter* counts_loss = nullptr;
};

namespace {

std::size_t weight(const outgoing& answer) noexcept {
    std::size_t bytes = outbox::answer_overhead_bytes;
    for (std::size_t i = 0; i < answer.piece_count; ++i)
        bytes += answer.pieces[i].size();
    return bytes;
}

}  // namespace

outbox::~outbox() {
    if (unused_ != nullptr) copied_message::destroy(*unused_);
}

void outbox::open(std::span<const std::unique_ptr<port>> ports) {
    for (const std::unique_ptr<port>& each : ports) {
        links_.push_back({each.get(), nullptr, cast_if_typed<short_lanes>(*each)});
        limits_.push_back(each->can().max_message_bytes);
        eager_.push_back(std::min(each->can().eager_bytes, limits_.back() / 2));
        inline_.push_back(each->can().inline_bytes);
        short_.push_back(std::min(eager_.back(), inline_.back()));
    }
    links_.push_back({});
    spare_ = buffers_.take(spare_bytes);
    closed_ = false;
}

outbox::link& outbox::link_to(std::uint16_t port) noexcept {
    return port == peer::self_port ? links_.back() : links_[port];
}

inline posted outbox::post(const peer& to, outgoing& out) noexcept {
    const gather pieces(out.pieces.data(), out.piece_count);
    if (to.is_self()) return self_.post(out.tag, pieces);
    return links_[to.port()].where->post_send(to.id(), out.tag, pieces, out);
}

void outbox::heard_from(peer_state& there) noexcept {
    there.heard = true;
    const std::size_t port = there.name.port();
    if (port >= short_.size()) return;  // Ourselves.
    link& through = links_[port];
    there.way = through.where;
    if (there.queue_first != nullptr) return;
    there.at_once_bytes = short_[port];
    if (through.lanes != nullptr) there.lane = through.lanes->lane_to(there.name.id());
}

[[gnu::noinline]] void outbox::not_done(peer_state& there, std::uint64_t tag, const_bytes whole,
                                        outgoing& out, posted how) noexcept {
    out.to = there.name;
    out.tag = tag;
    out.pieces[0] = whole;
    out.piece_count = 1;
    if (how == posted::full) {
        ++link_to(static_cast<std::uint16_t>(there.name.port())).retries;
        return append(there, out);
    }
    out.where = outgoing::at::port;
}

outbox::result outbox::send(peer_state& there, outgoing& out) noexcept {
    if (closed_) return result::closed;
    out.to = there.name;
    if (there.queue_first == nullptr) {
        switch (post(there.name, out)) {
            case posted::done:
                return result::done;
            case posted::pending:
                out.where = outgoing::at::port;
                return result::pending;
            case posted::full:
                ++link_to(static_cast<std::uint16_t>(there.name.port())).retries;
                break;
        }
    }
    append(there, out);
    return result::pending;
}

void outbox::append(peer_state& there, outgoing& out) noexcept {
    out.where = outgoing::at::queue;
    out.queue_of = &there;
    there.at_once_bytes = 0;
    there.lane = nullptr;
    outgoing* before = there.queue_last;
    if (out.urgent) {
        while (before != nullptr && !before->urgent)
            before = before->previous;
    }
    out.previous = before;
    out.next = before != nullptr ? before->next : there.queue_first;
    (out.next != nullptr ? out.next->previous : there.queue_last) = &out;
    (before != nullptr ? before->next : there.queue_first) = &out;
    ++there.queued;
    if (out.is_answer) count_unread(there, out, true);
    queued_.fetch_add(1, std::memory_order_relaxed);
    if (there.listed) return;
    link& through = link_to(static_cast<std::uint16_t>(there.name.port()));
    there.listed = true;
    there.next_queued = std::exchange(through.first_queued, &there);
}

void outbox::count_unread(peer_state& there, const outgoing& out, bool more) noexcept {
    const std::size_t bytes = weight(out);
    there.unread_bytes += more ? bytes : -bytes;
    if (there.name.is_self()) return;
    more ? unread_bytes_.add(bytes) : unread_bytes_.subtract(bytes);
}

void outbox::unlink(peer_state& there, outgoing& out) noexcept {
    (out.previous != nullptr ? out.previous->next : there.queue_first) = out.next;
    (out.next != nullptr ? out.next->previous : there.queue_last) = out.previous;
    out.where = outgoing::at::nowhere;
    if (there.queue_first == nullptr && there.heard) heard_from(there);
    --there.queued;
    if (out.is_answer) count_unread(there, out, false);
    queued_.fetch_sub(1, std::memory_order_relaxed);
}

[[gnu::noinline]] void outbox::fill_spare() noexcept {
    spare_ = buffers_.try_take(spare_bytes);
}

[[gnu::noinline]] buffer outbox::take_spare(std::size_t bytes) noexcept {
    return bytes <= spare_bytes ? std::move(spare_) : buffer();
}

/// A message that the port copies needs no copy of ours. Only to a peer that is connected: until
/// then a port may borrow short ones, too. False: nothing was sent.
bool outbox::post_at_once(peer_state& there, std::uint64_t tag,
                          std::initializer_list<const_bytes> pieces,
                          const copy_options& how) noexcept {
    if (!there.heard || there.queue_first != nullptr || how.held.owner != nullptr) return false;
    if (unused_ == nullptr) unused_ = make_copy(0, how);
    if (unused_ == nullptr) return false;
    copied_message& out = *unused_;
    std::size_t bytes = how.behind.size();
    out.piece_count = 0;
    for (const const_bytes& piece : pieces) {
        if (piece.empty()) continue;
        out.pieces[out.piece_count++] = piece;
        bytes += piece.size();
    }
    const std::uint16_t port = static_cast<std::uint16_t>(there.name.port());
    if (port < inline_.size() && bytes > inline_[port]) return false;
    if (!how.behind.empty()) out.pieces[out.piece_count++] = how.behind;
    out.to = there.name;
    out.tag = tag;
    const posted took = post(there.name, out);
    if (took == posted::full) return false;
    if (took == posted::pending) [[unlikely]] {
        // The peer is gone: the port tells so later.
        out.where = outgoing::at::port;
        out.counts_loss = how.counts_loss;
        unused_ = nullptr;
    }
    return true;
}

[[gnu::noinline]] bool outbox::make_unused() noexcept {
    unused_ = make_copy(0, {});
    return unused_ != nullptr;
}

bool outbox::send_now(peer_state& there, std::uint64_t tag, const_bytes whole,
                      owned_counter* counts_loss) noexcept {
    if (whole.size() > there.at_once_bytes || closed_) [[unlikely]]
        return false;
    if (std::byte* const to = whole.size() <= short_lane::max_bytes ? room_for(there) : nullptr) {
        short_lane::copy(to, whole);
        there.lane->send(to, tag, whole.size());
        return true;
    }
    if (unused_ == nullptr && !make_unused()) [[unlikely]]
        return false;
    const posted took = there.way->post_send(there.name.id(), tag, gather(&whole, 1), *unused_);
    if (took == posted::done) [[likely]]
        return true;
    if (took == posted::full) return false;
    copied_message& out = *std::exchange(unused_, nullptr);  // The peer is gone, as above.
    out.to = there.name;
    out.tag = tag;
    out.where = outgoing::at::port;
    out.counts_loss = counts_loss;
    return true;
}

copied_message* outbox::make_copy(std::size_t bytes, const copy_options& how) noexcept {
    const std::size_t room = sizeof(copied_message) + bytes;
    if (spare_.empty()) [[unlikely]]
        fill_spare();
    buffer around = buffers_.try_take(room);
    if (around.empty()) [[unlikely]] {
        around = take_spare(room);
        if (around.empty()) return nullptr;
    }
    std::byte* const home = around.data();
    auto* const out = ::new (home) copied_message(std::move(around));
    out->counts_loss = how.counts_loss;
    return out;
}

bool outbox::send_copy(peer_state& there, std::uint64_t tag,
                       std::initializer_list<const_bytes> pieces, copy_options how) noexcept {
    if (closed_) return false;
    if (post_at_once(there, tag, pieces, how)) [[likely]]
        return true;
    std::size_t bytes = 0;
    for (const const_bytes& piece : pieces)
        bytes += piece.size();
    copied_message* const out = make_copy(bytes + how.behind.size(), how);
    if (out == nullptr) return false;
    out->owner = std::move(how.held.owner);
    std::byte* at = reinterpret_cast<std::byte*>(out) + sizeof(copied_message);
    const auto copy = [&at](const const_bytes& piece) {
        if (!piece.empty()) std::memcpy(at, piece.data(), piece.size());
        at += piece.size();
    };
    out->tag = tag;
    out->pieces[0] = {at, bytes};
    out->piece_count = 1;
    for (const const_bytes& piece : pieces)
        copy(piece);
    if (!how.held.bytes.empty()) out->pieces[out->piece_count++] = how.held.bytes;
    if (!how.behind.empty()) out->pieces[out->piece_count++] = {at, how.behind.size()};
    copy(how.behind);
    out->is_answer = how.is_answer;
    out->urgent = how.urgent;
    if (send(there, *out) != result::pending) copied_message::destroy(*out);
    return true;
}

void outbox::cut_off(const peer& there) noexcept {
    if (!closed_ && !there.is_self()) links_[there.port()].where->close(there.id());
}

void outbox::end_untold(const peer_state& there) noexcept {
    untold_.add();
    cut_off(there.name);
}

void outbox::end_untold(std::uint16_t port, peer_id who) noexcept {
    untold_.add();
    links_[port].where->close(who);
}

void outbox::withdraw(outgoing& out) noexcept {
    if (out.where == outgoing::at::port) {
        links_[out.to.port()].where->cancel(out);
    } else if (out.where == outgoing::at::queue) {
        // The peer table keeps a state while anything is queued there.
        peer_state& there = *out.queue_of;
        unlink(there, out);
        if (there.queued <= max_queued_ / 2) release(there);
        out.finish({errc::canceled}, 0);
    }
}

void outbox::flush(link& through) noexcept {
    for (peer_state** at = &through.first_queued; *at != nullptr;) {
        peer_state& there = **at;
        while (outgoing* const out = there.queue_first) {
            const posted how = post(there.name, *out);
            if (how == posted::full) {
                ++through.retries;
                break;
            }
            unlink(there, *out);
            if (how == posted::pending) {
                out->where = outgoing::at::port;
            } else {
                out->finish({}, 0);
            }
        }
        if (there.queued <= max_queued_ / 2) release(there);
        if (there.queue_first == nullptr) {
            there.listed = false;
            *at = std::exchange(there.next_queued, nullptr);
        } else {
            at = &there.next_queued;
        }
    }
}

void outbox::drop(peer_state& gone, status why) noexcept {
    while (outgoing* const out = gone.queue_first) {
        unlink(gone, *out);
        out->finish(why, 0);
    }
    release(gone);
    if (!std::exchange(gone.listed, false)) return;
    link& through = link_to(static_cast<std::uint16_t>(gone.name.port()));
    peer_state** at = &through.first_queued;
    while (*at != &gone)
        at = &(*at)->next_queued;
    *at = std::exchange(gone.next_queued, nullptr);
}

void outbox::close() noexcept {
    closed_ = true;
    for (link& each : links_) {
        while (each.first_queued != nullptr)
            drop(*each.first_queued, {errc::closed});
    }
    self_.clear();
}

bool outbox::admit(peer_state& there, admission& me) noexcept {
    if (closed_ || !must_wait(there)) return true;
    admission** at = &there.admissions;
    while (*at != nullptr)
        at = &(*at)->next;
    *at = &me;
    return false;
}

void outbox::release(peer_state& there) noexcept {
    admission* each = std::exchange(there.admissions, nullptr);
    while (each != nullptr) {
        admission* const next = each->next;  // Read first: the waiter is destroyed once unparked.
        each->who.unpark();
        each = next;
    }
}

bool outbox::idle() const noexcept {
    if (queued() != 0 || !self_.empty()) return false;
    for (const link& each : links_) {
        if (each.where != nullptr && each.where->open_operations() != 0) return false;
    }
    return true;
}

}  // namespace amalgam::detail
