#include "fabric/transports/tcp/connection.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>

#include "fabric/transports/tcp/silence.hpp"
#include "fabric/transports/tcp/tcp_port.hpp"

namespace amalgam::detail {
namespace {

// Gathered frames leave when they come to this much, at the latest.
constexpr std::size_t flush_bytes = 16384;
// Sent without looking whether it arrives; less than any window a peer would shut.
constexpr std::size_t trusted_bytes = 16384;
constexpr int reads_per_round = 8;
constexpr std::size_t max_pieces = 64;

using pieces = std::array<iovec, max_pieces>;

ssize_t write_pieces(int fd, std::span<iovec> what) noexcept {
    msghdr message{};
    message.msg_iov = what.data();
    message.msg_iovlen = what.size();
    ssize_t sent;
    do
        sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

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
      reader_(tcp_port::max_frame_bytes),
      queue_(home.memory().pool()),
      address_(std::move(address)) {}

connection::~connection() {
    drop_deadline();
    close_socket();
}

// ---- sending

posted connection::send(const frame_header& header, gather payload, completion* on_sent) noexcept {
    if (phase_ > phase::up) return posted::full;  // link_down() follows in the next round.
    const std::size_t bytes = total_bytes(payload);
    const bool small = bytes <= send_queue::max_copy_bytes;
    const wire_header wire = to_wire(header);
    if (phase_ == phase::entering) return enqueue(wire, payload, on_sent, on_sent == nullptr);
    watch_sent(bytes + wire.size());
    const bool first = last_round_ != home_.round();
    last_round_ = home_.round();
    if (queue_.empty() && (first || !small)) return write_or_queue(wire, payload, on_sent, small);
    return enqueue(wire, payload, on_sent, small);
}

posted connection::write_or_queue(const wire_header& header, gather payload, completion* on_sent,
                                  bool small) noexcept {
    pieces what;
    what[0] = {const_cast<std::byte*>(header.data()), header.size()};
    std::size_t count = 1;
    for (std::size_t i = 0; i < payload.size() && count < max_pieces; ++i)
        what[count++] = {const_cast<std::byte*>(payload[i].data()), payload[i].size()};
    const bool all = count == payload.size() + 1;
    const std::size_t offered = bytes_of(std::span(what).first(count));
    const ssize_t result = write_pieces(socket_.get(), std::span(what).first(count));
    if (result < 0 && errno != EAGAIN) {
        break_off(errno);
        return posted::full;
    }
    const std::size_t sent = result < 0 ? 0 : static_cast<std::size_t>(result);
    if (sent == offered && all) return posted::done;
    const bool kept =
        small ? queue_.copy(header, payload, sent) : queue_.lend(header, payload, *on_sent, sent);
    if (!kept) {
        if (sent > 0) break_off(ENOMEM);  // Half a frame is out: what follows makes no sense.
        was_full_ = true;
        home_.has_work(*this);
        return posted::full;
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

/// Writes the queue until it is empty or the socket full. Returns whether `posting` left whole:
/// its sender is told by the return, all others by a callback in a round.
bool connection::flush(const completion* posting) noexcept {
    bool posting_left = false;
    while (!queue_.empty()) {
        pieces what;
        const std::size_t count = queue_.fill(what);
        const std::size_t offered = bytes_of(std::span(what).first(count));
        const ssize_t result = write_pieces(socket_.get(), std::span(what).first(count));
        if (result < 0 && errno != EAGAIN) {
            break_off(errno);
            break;
        }
        const std::size_t sent = result < 0 ? 0 : static_cast<std::size_t>(result);
        posting_left = settle(sent, posting) || posting_left;
        if (sent == offered) continue;
        wait_for_room();
        break;
    }
    return posting_left;
}

bool connection::settle(std::size_t bytes, const completion* posting) noexcept {
    bool posting_left = false;
    while (bytes > 0) {
        completion* through = queue_.advance(bytes);
        if (through == nullptr) continue;
        if (through == posting)
            posting_left = true;
        else
            remember_sent(*through);
    }
    return posting_left;
}

void connection::remember_sent(completion& op) noexcept {
    op.port_words[3] = 0;
    if (last_sent_ != nullptr)
        last_sent_->port_words[3] = reinterpret_cast<std::uintptr_t>(&op);
    else
        first_sent_ = &op;
    last_sent_ = &op;
    home_.has_work(*this);
}

void connection::forget_sent(const completion& op) noexcept {
    completion* before = nullptr;
    for (completion* at = first_sent_; at != nullptr;) {
        auto* next = reinterpret_cast<completion*>(at->port_words[3]);
        if (at != &op) {
            before = std::exchange(at, next);
            continue;
        }
        if (before != nullptr)
            before->port_words[3] = at->port_words[3];
        else
            first_sent_ = next;
        if (last_sent_ == at) last_sent_ = before;
        return;
    }
}

void connection::wait_for_room() noexcept {
    if (!std::exchange(blocked_, true)) home_.count_blocked(1);
    if (std::exchange(awaits_room_, true)) return;
    home_.events().change(socket_.get(), *this, handshake::events_of_a_connection | EPOLLOUT);
}

std::size_t connection::work_off(std::size_t budget) noexcept {
    if (phase_ == phase::up && !blocked_) flush(nullptr);
    if (phase_ == phase::up && awaits_room_ && queue_.empty()) {
        awaits_room_ = false;
        home_.events().change(socket_.get(), *this, handshake::events_of_a_connection);
    }
    std::size_t told = 0;
    for (; told < budget && first_sent_ != nullptr; ++told) {
        completion& op = *first_sent_;
        first_sent_ = reinterpret_cast<completion*>(op.port_words[3]);
        if (first_sent_ == nullptr) last_sent_ = nullptr;
        home_.sent(op, status{});  // May post here, and may close us.
    }
    if (first_sent_ != nullptr) home_.has_work(*this);
    if (was_full_ && phase_ == phase::up && queue_.has_room()) {
        was_full_ = false;
        home_.writable(*this);
    }
    return told;
}

void connection::break_off(int error) noexcept {
    // Not over yet: answers that came before the end can still be read.
    phase_ = phase::broken;
    broken_by_ = error;
    readable_ = true;
    home_.activate(*this);
}

void connection::detach(completion& on_sent) noexcept {
    forget_sent(on_sent);
    if (!queue_.detach(on_sent)) down({errc::no_memory, ENOMEM});
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
    const ssize_t got = read_pieces(socket_.get(), std::span(into).first(count));
    if (got > 0) {
        drained = !ended_ && static_cast<std::size_t>(got) < bytes_of(std::span(into).first(count));
        return reader_.took(static_cast<std::size_t>(got), budget, *this, memory);
    }
    if (got < 0 && errno == EAGAIN && phase_ != phase::broken) {
        drained = true;
        return reader_.took(0, budget, *this, memory);
    }
    down({errc::disconnected, got < 0 && errno != EAGAIN ? errno : broken_by_});
    return frame_reader::state::gone;
}

std::size_t connection::read(std::size_t budget) noexcept {
    std::size_t left = budget;
    ++fruitless_;
    for (int i = 0; i < reads_per_round && left > 0 && !paused_ && can_read(); ++i) {
        bool drained = false;
        switch (read_some(left, drained)) {
            case frame_reader::state::hungry:
                break;
            case frame_reader::state::busy:
                held_ = readable_ = true;
                break;
            case frame_reader::state::paused:
                held_ = paused_ = true;
                // A peer that is lost, and not merely done, must not wait for room here.
                if (phase_ == phase::broken) down({errc::disconnected, broken_by_});
                break;
            case frame_reader::state::malformed:
                log(log_level::warn, "tcp", "a peer broke the protocol and was dropped",
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
    if (left < budget) fruitless_ = 0;
    return budget - left;
}

verdict connection::on_frame(const frame_header& header, const_bytes payload) noexcept {
    return home_.deliver(*this, header, payload);
}

landing* connection::on_large(const frame_header& header, const_bytes prefix) noexcept {
    return home_.begin_landing(*this, header, prefix);
}

verdict connection::on_large_end() noexcept {
    return home_.end_landing(*this);
}

void connection::go_on() noexcept {
    paused_ = false;
    readable_ = true;
    home_.activate(*this);
}

// ---- events

void connection::ready(std::uint32_t events) noexcept {
    if (phase_ == phase::entering) return follow(handshake_->ready(events));
    if (!can_read()) return;  // Of the same batch of events as its end.
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
    if ((events & EPOLLOUT) == 0 || !blocked_) return;
    blocked_ = false;
    home_.count_blocked(-1);
    home_.has_work(*this);
}

// ---- coming and going

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
    phase_ = phase::up;
    readable_ = true;
    if (!home_.entered(*this)) {
        phase_ = phase::over;
        close_socket();
        return home_.turned_away(*this);
    }
    handshake_.reset();
    home_.has_work(*this);
}

void connection::close_socket() noexcept {
    if (blocked_) home_.count_blocked(-1);
    blocked_ = false;
    if (socket_) home_.events().forget(socket_.get());
    socket_.reset();
    queue_.clear();
    first_sent_ = last_sent_ = nullptr;
}

void connection::down(status why) noexcept {
    drop_deadline();
    phase_ = phase::over;
    close_socket();
    home_.link_down(*this, why);
}

void connection::shut() noexcept {
    drop_deadline();
    if (phase_ == phase::up) {
        // Unblocked, only copies wait: their senders were told that they are done.
        if (!blocked_) flush(nullptr);
        // Unread bytes would make the kernel send a reset, which can overtake what was sent.
        constexpr std::size_t some = std::size_t{1} << 20;
        for (int i = 0; i < reads_per_round; ++i)
            if (::recv(socket_.get(), nullptr, some, MSG_TRUNC | MSG_DONTWAIT) <= 0) break;
    }
    phase_ = phase::over;
    close_socket();
    if (handshake_) handshake_->abandon();
    home_.forget_turned_away(*this);
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
    set_deadline(clock::steady().now() + home_.silence_limit() / 4);
}

void connection::check_sender(clock::time_point now) noexcept {
    const auto limit = home_.silence_limit();
    const sender_state found = look_at_sender(socket_.get(), limit);
    if (found == sender_state::dead) return down({errc::disconnected, ETIMEDOUT});
    const bool lift = found == sender_state::stalled;
    if (lift != timeout_lifted_) {
        limit_unacknowledged(socket_.get(), lift ? std::chrono::milliseconds(0) : limit);
        timeout_lifted_ = lift;
    }
    watched_ = found != sender_state::clear || !queue_.empty();
    if (watched_) return set_deadline(now + limit / 4);
    unproven_bytes_ = 0;
}

}  // namespace amalgam::detail
