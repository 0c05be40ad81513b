// How a connection sends frames.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>
#include <unistd.h>

#include "fabric/limits.hpp"
#include "fabric/transports/tcp/connection.hpp"
#include "fabric/transports/tcp/port.hpp"

namespace amalgam::detail {
namespace {

// Gathered frames are sent when they reach this size, at the latest.
constexpr std::size_t flush_bytes = 16384;
constexpr std::size_t max_pieces = 64;
// Up to this size a frame is assembled first: copying costs less than a list of pieces.
constexpr std::size_t joined_bytes = 256;

using pieces = std::array<iovec, max_pieces>;

}  // namespace

inline connection::written connection::write(std::span<iovec> what, std::size_t ours) noexcept {
    return tls_ == nullptr ? write_plain(what) : seal(what, ours);
}

inline connection::written connection::write_plain(std::span<iovec> what) noexcept {
    const int fd = socket_.get();
    written done;
    for (const iovec& one : what)
        done.offered += one.iov_len;
    constexpr int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    msghdr message{};
    message.msg_iov = what.data();
    message.msg_iovlen = what.size();
    ssize_t sent;
    do  // For one piece, a call without a list is faster.
        sent = what.size() == 1 ? ::send(fd, what[0].iov_base, what[0].iov_len, flags)
                                : ::sendmsg(fd, &message, flags);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        done.sent = static_cast<std::size_t>(sent);
    else if (errno != EAGAIN)
        done.error = errno;
    return done;
}

/// As write_plain(), through TLS.
connection::written connection::seal(std::span<iovec> what, std::size_t ours) noexcept {
    if (ours == as_queued) ours = queue_.has_lent() ? 0 : what.size();
    written done;
    for (const iovec& one : what)
        done.offered += one.iov_len;
    done.sent = tls_->write(what, done.error, ours);
    if (tls_->has_pending()) wait_for_room();
    if (!is_active) home_.has_work(*this);  // To rest.
    return done;
}

posted connection::send(const frame_header& header, gather payload, completion* on_sent) noexcept {
    if (phase_ > phase::up) return posted::full;  // link_down() follows in the next round.
    const std::size_t bytes = total_bytes(payload);
    const bool small = bytes <= limits::max_copy_bytes;
    const wire_header wire = to_wire(header);
    if (phase_ == phase::entering) return enqueue(wire, payload, on_sent, on_sent == nullptr);
    watch_sent(bytes + wire.size());
    if (last_round_ != home_.round()) {
        crowded_ = sent_in_round_ > 1;
        sent_in_round_ = 0;
        last_round_ = home_.round();
    }
    const bool at_once = sent_in_round_++ == 0 && !crowded_;
    if (queue_.empty() && (at_once || !small)) return write_or_queue(wire, payload, on_sent, bytes);
    return enqueue(wire, payload, on_sent, small);
}

posted connection::write_or_queue(const wire_header& header, gather payload, completion* on_sent,
                                  std::size_t bytes) noexcept {
    const bool small = bytes <= limits::max_copy_bytes;
    pieces what;
    std::size_t count = 1;
    bool all = true;
    std::array<std::byte, joined_bytes> joined;
    if (const std::size_t whole = header.size() + bytes; whole <= joined.size()) {
        std::memcpy(joined.data(), header.data(), header.size());
        copy_out(payload, joined.data() + header.size());
        what[0] = {joined.data(), whole};
    } else {
        what[0] = {const_cast<std::byte*>(header.data()), header.size()};
        for (std::size_t i = 0; i < payload.size() && count < max_pieces; ++i)
            what[count++] = {const_cast<std::byte*>(payload[i].data()), payload[i].size()};
        all = count == payload.size() + 1;
    }
    const auto [offered, sent, error] = write(std::span(what).first(count), 1);
    if (error != 0 && (error != EFAULT || on_sent == nullptr)) {
        break_off(error);
        return posted::full;
    }
    if (sent == offered && all) return posted::done;
    // Unreadable memory is not copied either; the next round decides what to do with it.
    const bool kept = small && error == 0 ? queue_.copy(header, payload, sent)
                                          : queue_.lend(header, payload, *on_sent, sent);
    if (!kept) {
        if (sent > 0) break_off(ENOMEM);  // Half a frame was sent: the stream is broken.
        was_full_ = true;
        home_.has_work(*this);
        return posted::full;
    }
    if (error != 0) {
        home_.has_work(*this);
        return posted::pending;
    }
    if (sent < offered) {
        wait_for_room();
        return small ? posted::done : posted::pending;
    }
    return flush(on_sent) || small ? posted::done : posted::pending;
}

posted connection::enqueue(const wire_header& header, gather payload, completion* on_sent,
                           bool small) noexcept {
    const bool kept = small ? queue_.copy(header, payload) : queue_.lend(header, payload, *on_sent);
    if (!kept) {
        was_full_ = true;
        if (phase_ == phase::up && !blocked_) home_.has_work(*this);
        return posted::full;
    }
    if (phase_ == phase::up && !blocked_) {
        if (!small) return flush(on_sent) ? posted::done : posted::pending;
        if (queue_.copied_bytes() >= flush_bytes)
            flush(nullptr);
        else
            home_.has_work(*this);
    }
    return small ? posted::done : posted::pending;
}

/// Writes the queue until it is empty or the socket is full. Returns whether `posting` was sent
/// whole: its sender learns that from the return value, all others from a callback in a round.
bool connection::flush(const completion* posting) noexcept {
    bool posting_left = false;
    std::size_t sealed = 0;
    while (!queue_.empty()) {
        pieces what;
        const std::size_t count = queue_.fill(what);
        const auto [offered, sent, error] = write(std::span(what).first(count));
        if (error == EFAULT && posting != nullptr) {  // Its sender does not know of it yet.
            home_.has_work(*this);
            break;
        }
        if (error == EFAULT && pass_unreadable()) continue;
        if (error != 0) {
            if (phase_ == phase::up && !blocked_) break_off(error);
            break;
        }
        posting_left = settle(sent, posting) || posting_left;
        if (tls_ != nullptr && (sealed += sent) >= tls_session::bytes_at_a_time) {
            home_.has_work(*this);
            break;
        }
        // Before bad memory the kernel also stops early; no event would follow then.
        if (sent == offered || (met_bad_memory_ && sent > 0)) continue;
        wait_for_room();
        break;
    }
    if (queue_.empty()) met_bad_memory_ = false;
    return posting_left;
}

/// Some queued memory cannot be read. Skips the first frame, or sends it up to the bad memory and
/// past it. False: that ended the connection, or the socket is full.
bool connection::pass_unreadable() noexcept {
    met_bad_memory_ = true;
    completion* const lent = queue_.first_lent();
    if (lent != nullptr && !queue_.first_begun() && !queue_.first_is_readable()) {
        if (home_.unreadable(*lent, false) == tcp_port::remedy::break_off) return false;
        queue_.forget(*lent);
        was_full_ = true;  // No reply will ask for what is queued behind it.
        home_.has_work(*this);
        return true;
    }
    pieces what;
    queue_.fill(what, 1);
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t to_page_end =
        page - reinterpret_cast<std::uintptr_t>(what[0].iov_base) % page;
    what[0].iov_len = std::min(what[0].iov_len, to_page_end);
    const auto [offered, sent, error] = write(std::span(what).first(1));
    if (error == 0) {
        settle(sent, nullptr);
        if (sent == 0) wait_for_room();
        return sent > 0;
    }
    if (error != EFAULT || lent == nullptr) return false;
    if (home_.unreadable(*lent, true) == tcp_port::remedy::break_off) return false;
    return queue_.blank_first();
}

bool connection::settle(std::size_t bytes, const completion* posting) noexcept {
    bool posting_left = false;
    while (bytes > 0) {
        completion* through = queue_.advance(bytes);
        if (through == nullptr) continue;
        if (through == posting)
            posting_left = true;
        else
            sent_.push(*through);
    }
    if (!sent_.empty()) home_.has_work(*this);
    return posting_left;
}

void connection::wait_for_room() noexcept {
    // It had enough for this round, or stopped at bad memory: no event would follow.
    if (tls_ != nullptr && !tls_->has_pending()) return home_.has_work(*this);
    if (!std::exchange(blocked_, true)) home_.count_blocked(1);
    watch_sent(trusted_bytes);
    if (std::exchange(awaits_room_, true)) return;
    home_.events().change(socket_.get(), *this, handshake::events_of_a_connection | EPOLLOUT);
}

std::size_t connection::work_off(std::size_t budget) noexcept {
    if (phase_ == phase::up && !blocked_) flush(nullptr);
    if (phase_ == phase::up && awaits_room_ && queue_.empty() && !blocked_) {
        awaits_room_ = false;
        home_.events().change(socket_.get(), *this, handshake::events_of_a_connection);
    }
    if (tls_ != nullptr && !is_active && queue_.empty()) tls_->rest();
    std::size_t told = 0;
    for (; told < budget && !sent_.empty(); ++told)
        home_.sent(sent_.pop(), status{});  // May post here, and may close this connection.
    if (!sent_.empty()) home_.has_work(*this);
    if (was_full_ && phase_ == phase::up && queue_.has_room()) {
        was_full_ = false;
        home_.note_room();
        home_.writable(*this);
    }
    return told;
}

void connection::break_off(int error) noexcept {
    // A lost peer must not wait until somebody takes what it sent.
    if (paused_) return down({errc::disconnected, error});
    // Not over yet: replies received before the end can still be read. The socket may be intact,
    // for example if our memory failed: its reading must end too.
    phase_ = phase::broken;
    broken_by_ = error;
    readable_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    home_.activate(*this);
}

void connection::detach(completion& on_sent) noexcept {
    if (!sent_.forget(on_sent) && !queue_.detach(on_sent)) down({errc::no_memory, ENOMEM});
}

}  // namespace amalgam::detail
