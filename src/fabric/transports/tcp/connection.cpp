#include "fabric/transports/tcp/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <amalgam/core/limited_log.hpp>

#include "fabric/limits.hpp"
#include "fabric/sockets/binding.hpp"
#include "fabric/transports/tcp/port.hpp"

namespace amalgam::detail {
namespace {

constexpr int reads_per_round = 8;
// A peer that sends less of a frame than this within the limit only holds it open.
constexpr std::size_t least_bytes = 4096;

using pieces = std::array<iovec, frame_reader::max_places>;

ssize_t read_pieces(int fd, std::span<iovec> into) noexcept {
    ssize_t got;
    do
        got = into.size() == 1 ? ::recv(fd, into[0].iov_base, into[0].iov_len, MSG_DONTWAIT)
                               : ::readv(fd, into.data(), static_cast<int>(into.size()));
    while (got < 0 && errno == EINTR);
    return got;
}

std::size_t bytes_of(std::span<const iovec> what) noexcept {
    std::size_t bytes = 0;
    for (const iovec& one : what)
        bytes += one.iov_len;
    return bytes;
}

}  // namespace

connection::connection(tcp_port& home, std::string address)
    : home_(home),
      reader_(limits::max_frame_bytes),
      queue_(home.memory().pool()),
      address_(std::move(address)) {}

connection::~connection() {
    drop_deadline();
    close_socket();
    if (handshake_) handshake_->abandon();
}

// ---- receiving

frame_reader::state connection::read_some(std::size_t& budget, bool& drained) noexcept {
    receive_memory& memory = home_.memory();
    if (held_) {
        held_ = false;
        return reader_.go_on(budget, *this, memory);
    }
    pieces into;
    const std::size_t count = reader_.places(into, memory);
    if (count == 0) {
        down({errc::no_memory, ENOMEM});
        return frame_reader::state::gone;
    }
    const std::span<iovec> places = std::span(into).first(count);
    const ssize_t got = tls_ == nullptr ? read_pieces(socket_.get(), places) : unseal(places);
    if (got > 0) {
        bytes_read_ += static_cast<std::size_t>(got);
        drained = !ended_ && phase_ != phase::broken &&
                  (tls_ == nullptr ? static_cast<std::size_t>(got) < bytes_of(places)
                                   : tls_->drained() && tls_->write_error() == 0);
        return reader_.took(static_cast<std::size_t>(got), budget, *this, memory);
    }
    if (got < 0 && errno == EAGAIN && phase_ != phase::broken) {
        drained = tls_ == nullptr || tls_->drained();
        return reader_.took(0, budget, *this, memory);
    }
    if (got < 0 && errno == EFAULT && reader_.is_landing()) {
        home_.unwritable(*this);
        return frame_reader::state::starving;
    }
    down({errc::disconnected, got < 0 && errno != EAGAIN ? errno : broken_by_});
    return frame_reader::state::gone;
}

/// As read_pieces(), through TLS.
ssize_t connection::unseal(std::span<iovec> into) noexcept {
    const bool was_pending = tls_->has_pending();
    const ssize_t got = tls_->read(into, reader_.is_landing());
    const int error = errno;
    // The peer may have asked for an answer of TLS itself.
    if (tls_->has_pending() && !was_pending) wait_for_room();
    if (got < 0 && !tls_->why().sentence.empty())
        limited_log(log_level::warn, "tcp", "dropped a peer",
                    {{"peer", address_}, {"why", tls_->why().sentence}});
    if (got >= 0 || tls_->write_error() == 0 || error != EAGAIN) {
        errno = error;
        return got;
    }
    errno = tls_->write_error();
    return -1;
}

identity connection::who() const {
    return tls_ != nullptr ? tls_->peer() : identity{};
}

const key_fingerprint* connection::proven_key() const noexcept {
    const bool has_one = tls_ != nullptr && tls_->peer().kind == identity_kind::certificate;
    return has_one ? &tls_->peer().key : nullptr;
}

std::size_t connection::read(std::size_t budget) noexcept {
    std::size_t left = budget;
    ++fruitless_;
    for (int i = 0; i < reads_per_round && left > 0 && !paused_ && can_read(); ++i) {
        bool drained = false;
        switch (read_some(left, drained)) {
            case frame_reader::state::starving:
                break;
            case frame_reader::state::busy:
                held_ = readable_ = true;
                break;
            case frame_reader::state::paused:
                held_ = paused_ = true;
                // A lost peer, as opposed to one that is done, must not wait for room here.
                if (phase_ == phase::broken) down({errc::disconnected, broken_by_});
                break;
            case frame_reader::state::malformed:
                if (phase_ == phase::over) break;  // Ended by us, not its fault.
                limited_log(log_level::warn, "tcp", "dropped a peer that violated the protocol",
                            {{"peer", address_}});
                down({errc::disconnected, EPROTO});
                break;
            case frame_reader::state::gone:
                break;
        }
        if (!drained) continue;
        readable_ = false;
        break;
    }
    frames_read_ += budget - left;
    if (left < budget) fruitless_ = 0;
    if (can_read() && !held_ && reader_.is_within_frame()) home_.watch_frames();
    return budget - left;
}

bool connection::check_frame() noexcept {
    if (!can_read() || held_ || !reader_.is_within_frame()) {
        stuck_checks_ = 0;
        return false;
    }
    if (frames_read_ != frames_at_check_ || bytes_read_ - bytes_at_check_ >= least_bytes) {
        frames_at_check_ = frames_read_;
        bytes_at_check_ = bytes_read_;
        stuck_checks_ = 0;
    } else if (++stuck_checks_ >= frame_checks) {
        limited_log(log_level::warn, "tcp", "dropped a peer that did not finish a frame",
                    {{"peer", address_}});
        home_.count_evicted();
        down({errc::disconnected, ETIMEDOUT});
        return false;
    }
    return true;
}

std::chrono::milliseconds connection::idle_for() const noexcept {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
    return std::chrono::milliseconds(std::min(info.tcpi_last_data_recv, info.tcpi_last_data_sent));
}

delivery connection::on_frame(const frame_header& header, const_bytes payload) noexcept {
    return home_.deliver(*this, header, payload);
}

placement* connection::on_large(const frame_header& header, const_bytes prefix) noexcept {
    return home_.begin_placement(*this, header, prefix);
}

delivery connection::on_large_end() noexcept {
    return home_.end_placement(*this);
}

bool connection::on_large_full() noexcept {
    return home_.extend_placement(*this);
}

void connection::go_on() noexcept {
    paused_ = false;
    readable_ = true;
    home_.activate(*this);
}

// ---- events

void connection::ready(std::uint32_t events) noexcept {
    if (phase_ == phase::entering) {
        if (home_.may_step()) follow(handshake_->ready(events));
        return;
    }
    if (!can_read()) return;  // Same batch of events as its end.
    if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        readable_ = true;
        ended_ = ended_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        home_.activate(*this);
    }
    if (paused_ && (events & (EPOLLHUP | EPOLLERR)) != 0) {
        int error = 0;
        socklen_t bytes = sizeof error;
        ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
        return down({errc::disconnected, error});
    }
    if ((events & EPOLLOUT) != 0 && blocked_) try_again();
}

void connection::try_again() noexcept {
    if (tls_ != nullptr && !tls_->drain() && tls_->write_error() == 0) return;
    blocked_ = false;
    home_.count_blocked(-1);
    home_.has_work(*this);
}

// ---- opening and closing

void connection::begin(std::unique_ptr<handshake> way_in) noexcept {
    handshake_ = std::move(way_in);
    set_deadline(handshake_->deadline());
}

void connection::follow(handshake::state outcome) noexcept {
    if (outcome == handshake::state::waiting) return set_deadline(handshake_->deadline());
    drop_deadline();
    if (outcome == handshake::state::failed) {
        phase_ = phase::over;
        return home_.turned_away(*this);
    }
    socket_ = handshake_->take_socket();
    tls_ = handshake_->take_session();
    suit_to_path(socket_.get());
    phase_ = phase::up;
    readable_ = true;
    if (!home_.entered(*this)) {
        phase_ = phase::over;
        close_socket();
        return home_.turned_away(*this);
    }
    handshake_.reset();
    // What was queued meanwhile may fill the peer's window at once.
    if (!queue_.empty()) watch_sent(trusted_bytes);
    if (tls_ != nullptr) {
        if (!came_to_us) home_.keep_ticket(address_, *tls_);
        if (tls_->has_pending()) wait_for_room();
    }
    home_.has_work(*this);
}

void connection::close_socket() noexcept {
    if (blocked_) home_.count_blocked(-1);
    blocked_ = false;
    home_.events().close(socket_);
    queue_.clear();
    sent_.clear();
}

void connection::down(status why) noexcept {
    drop_deadline();
    phase_ = phase::over;
    close_socket();
    home_.link_down(*this, why);
}

void connection::shut() noexcept {
    drop_deadline();
    // In a child of fork(), the bytes, and the keys of TLS, are the parent's.
    if (phase_ == phase::up && !home_.events().is_inherited()) {
        // Unblocked, only copies are queued: their senders were told that they are done.
        if (!blocked_) flush(nullptr);
        if (tls_ != nullptr) end_session();
        discard_unread(socket_.get());
    }
    phase_ = phase::over;
    close_socket();
    if (handshake_) handshake_->abandon();
    home_.forget_turned_away(*this);
}

void connection::end_session() noexcept {
    // One flush() encrypts no more than its share.
    for (int i = 0; i < 4 && phase_ == phase::up && !blocked_ && !queue_.empty(); ++i)
        flush(nullptr);
    tls_->say_end();
}

// ---- time

void connection::set_deadline(clock::time_point when) noexcept {
    if (when == deadline_) return;
    drop_deadline();
    deadline_ = when;
    home_.times().add(when, *this);
}

void connection::drop_deadline() noexcept {
    if (deadline_ == clock::time_point{}) return;
    home_.times().drop(deadline_, *this);
    deadline_ = {};
}

void connection::due(clock::time_point now) noexcept {
    deadline_ = {};
    if (phase_ == phase::entering) return follow(handshake_->late(now));
    if (can_read()) check_sender(now);
}

void connection::watch_sent(std::size_t bytes) noexcept {
    unproven_bytes_ += bytes;
    if (unproven_bytes_ < trusted_bytes || watched_) return;
    watched_ = true;
    // At once: a program that is not scheduled for long could not do it in time.
    limit_unacknowledged(socket_.get(), std::chrono::milliseconds(0));
    const clock::time_point now = clock::steady().now();
    sender_.begin(socket_.get(), now);
    set_deadline(now + home_.silence_limit() / 4);
}

void connection::check_sender(clock::time_point now) noexcept {
    const auto limit = home_.silence_limit();
    const sender_state found = sender_.look(socket_.get(), limit, now);
    if (found == sender_state::dead) return down({errc::disconnected, ETIMEDOUT});
    watched_ = found != sender_state::clear || !queue_.empty();
    // What looked like a full socket may have been unreadable memory; see flush().
    if (blocked_ && found == sender_state::clear) try_again();
    if (watched_) return set_deadline(now + limit / 4);
    limit_unacknowledged(socket_.get(), limit);
    unproven_bytes_ = 0;
}

}  // namespace amalgam::detail
