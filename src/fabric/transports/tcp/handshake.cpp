#include "fabric/transports/tcp/handshake.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace amalgam::detail {

handshake::handshake(const handshake_setting& setting, event_source& source, std::string target,
                     std::string host)
    : setting_(setting),
      source_(source),
      target_(std::move(target)),
      accepted_(false),
      step_(step::resolving),
      host_(std::move(host)),
      end_(clock::steady().now() + setting.limit),
      deadline_(end_) {}

handshake::handshake(const handshake_setting& setting, event_source& source, std::string target,
                     unique_fd accepted)
    : handshake(setting, source, std::move(target)) {
    accepted_ = true;
    const bool tls = setting_.tls != nullptr;
    step_ = tls ? step::tls : step::hello;
    socket_ = std::move(accepted);
    setting_.events.watch(socket_.get(), source_, tls ? events_of_tls : events_of_a_connection);
}

void handshake::abandon() noexcept {
    if (session_ && !setting_.events.is_inherited())
        discard_unread(socket_.get());  // A reset would overtake the alert.
    session_.reset();
    setting_.events.close(socket_);
    watches_room_ = false;
}

/// If out of memory, the attempt fails as for any other reason, but without a sentence.
template <typename Step>
handshake::state handshake::guarded(Step next) noexcept try {
    return next();
} catch (const std::bad_alloc&) {
    abandon();
    why_.what = {errc::no_memory, ENOMEM};
    why_.sentence.clear();
    return state::failed;
} catch (const error& why) {
    abandon();
    why_.what = why.code();
    try {
        why_.sentence = fmt::format("cannot reach {}: {}", target_, why.what());
    } catch (const std::bad_alloc&) {
        why_.sentence.clear();
    }
    return state::failed;
}

handshake::state handshake::fail(errc code, int native, const std::string& what) {
    abandon();
    why_ = {{code, native}, what};
    return state::failed;
}

handshake::state handshake::give_up(const failure& why) noexcept {
    return guarded([&] {
        return fail(errc::unreachable, why.what.native,
                    fmt::format("cannot reach {}: {}", target_, why.sentence));
    });
}

handshake::state handshake::evict() noexcept {
    return guarded([&] {
        return fail(
            errc::overloaded, EMFILE,
            fmt::format("{} sent no hello, and was evicted for another connection", target_));
    });
}

handshake::state handshake::dial(std::vector<socket_address> to) noexcept {
    // A socket bound to an address of one family reaches only that family.
    const int family = setting_.from.source.family();
    if (family != AF_UNSPEC)
        std::erase_if(to, [&](const socket_address& one) { return one.family() != family; });
    return guarded([&] {
        left_.assign(to.rbegin(), to.rend());
        return dial_next(EAFNOSUPPORT);
    });
}

handshake::state handshake::dial_next(int last_error) {
    while (!left_.empty()) {
        const socket_address to = left_.back();
        left_.pop_back();
        abandon();
        dialed made = open_connection(setting_.from, to);
        socket_ = std::move(made.socket);
        last_error = made.error;
        if (!socket_) continue;
        prepare_socket(socket_.get(), setting_.limit);
        const auto events = setting_.tls != nullptr ? events_of_tls : events_of_a_connection;
        if (setting_.events.watch(socket_.get(), source_, events | EPOLLOUT)) {
            const auto now = clock::steady().now();
            deadline_ = now + (end_ - now) / static_cast<int>(left_.size() + 1);
            step_ = step::connecting;
            return state::waiting;
        }
        last_error = errno;
    }
    return fail(errc::unreachable, last_error,
                fmt::format("cannot reach {}: {}", target_, std::strerror(last_error)));
}

handshake::state handshake::connected() {
    int error = 0;
    socklen_t bytes = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    const socket_address far = socket_address::far_end(socket_.get());
    // No listener, and the kernel picked that very port for our end: it connected to itself.
    if (error == 0 && (!far || far == socket_address::near_end(socket_.get())))
        error = ECONNREFUSED;
    if (error != 0) return dial_next(error);
    deadline_ = end_;
    if (setting_.tls != nullptr) {
        step_ = step::tls;
        setting_.events.change(socket_.get(), source_, events_of_tls);
        return shake_hands();
    }
    step_ = step::hello;
    if (!say_hello()) return dial_next(errno);
    setting_.events.change(socket_.get(), source_, events_of_a_connection);
    return state::waiting;
}

handshake::state handshake::shake_hands() {
    if (session_ == nullptr)
        session_ = accepted_ ? setting_.tls->accept(socket_.get())
                             : setting_.tls->connect(socket_.get(), host_, target_);
    switch (session_->shake_hands(true)) {
        case tls_session::state::waiting:
            watch_room();
            session_->rest();  // Strangers may be many, and take their time.
            return state::waiting;
        case tls_session::state::failed:
            return fail_session(session_->why());
        case tls_session::state::complete:
            break;
    }
    step_ = step::hello;
    if (!accepted_ && !say_hello())
        return fail(errc::unreachable, errno, fmt::format("cannot send a hello to {}", target_));
    return read_hello();
}

/// Ciphertext waits in either direction, or nothing does any more. What was received, and left for
/// the next step, causes no event; that there is room does.
void handshake::watch_room() {
    const bool waits = session_->has_pending() || session_->has_held_back();
    if (std::exchange(watches_room_, waits) == waits) return;
    const std::uint32_t room = waits ? std::uint32_t{EPOLLOUT} : 0;
    setting_.events.change(socket_.get(), source_, events_of_tls | room);
}

bool handshake::say_hello() {
    const encoded_hello wire(setting_.ours);
    if (session_ != nullptr) {
        errno = ECONNRESET;
        return session_->write_whole(wire.bytes());
    }
    // All or nothing: the buffer of a new socket has room for it.
    const ssize_t sent = ::send(socket_.get(), wire.bytes().data(), wire.bytes().size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(wire.bytes().size());
}

handshake::state handshake::fail_session(const failure& why) {
    const bool plain = hello::begins(session_->beginning());
    if (plain) {
        // An alert, "protocol_version", for the other side's log.
        constexpr std::array<unsigned char, 7> alert{21, 3, 3, 0, 2, 2, 70};
        ::send(socket_.get(), alert.data(), alert.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    is_refused_ = why.what.native != ECONNRESET;
    if (!accepted_) setting_.tls->forget(target_);
    return fail(why.what.code, why.what.native,
                plain
                    ? fmt::format("{} does not encrypt, and this port does; use tcp+tls:// at both "
                                  "ends, or tcp:// at both",
                                  target_)
                    : fmt::format("no TLS with {}: {}", target_, why.sentence));
}

handshake::state handshake::ready(std::uint32_t events) noexcept {
    if (!socket_) return state::waiting;  // An event of an abandoned attempt.
    return guarded([&] {
        if (step_ == step::connecting) {
            if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return state::waiting;
            const state now = connected();
            if (now != state::waiting || step_ != step::hello) return now;
        }
        if (step_ == step::tls) return shake_hands();
        if (session_ != nullptr) session_->drain();
        return read_hello();
    });
}

handshake::state handshake::read_hello() {
    const auto got = reader_.read(socket_.get(), session_.get());
    if (session_ != nullptr && !session_->why().sentence.empty())
        return fail_session(session_->why());
    const bool over = got != hello_reader::state::starving && got != hello_reader::state::complete;
    if (over && session_ == nullptr && reader_.is_tls())
        return fail(
            errc::unreachable, EPROTO,
            fmt::format("{} encrypts, and this port does not; use tcp+tls:// at both ends, or "
                        "tcp:// at both",
                        target_));
    switch (got) {
        case hello_reader::state::starving:
            if (session_ != nullptr) {
                (void)session_->drain();  // Of a handshake that is over, what no hello came with.
                watch_room();
            }
            return state::waiting;
        case hello_reader::state::complete:
            break;
        case hello_reader::state::stranger:
            return fail(errc::unreachable, EPROTO,
                        fmt::format("{} does not speak Amalgam's protocol: it sent \"{}\"", target_,
                                    reader_.beginning()));
        case hello_reader::state::ended:
            return fail(errc::unreachable, ECONNRESET,
                        fmt::format("{} closed the connection before its hello", target_));
        case hello_reader::state::broken:
            return fail(errc::unreachable, errno,
                        fmt::format("{} lost the connection before its hello: {}", target_,
                                    std::strerror(errno)));
    }
    // Sent to other versions too, so that both sides know what is wrong.
    if (accepted_ && !say_hello())
        return fail(errc::unreachable, errno, fmt::format("cannot send a hello to {}", target_));
    if (theirs().version != hello::current_version)
        return fail(errc::mismatch, 0,
                    fmt::format("{} speaks protocol version {}, this program version {}; use the "
                                "same release of Amalgam at both ends",
                                target_, theirs().version, hello::current_version));
    if (session_ != nullptr) setting_.events.change(socket_.get(), source_, events_of_a_connection);
    return state::complete;
}

handshake::state handshake::late(clock::time_point now) noexcept {
    return guarded([&] {
        if (step_ == step::connecting && now < end_) return dial_next(ETIMEDOUT);
        const char* what = step_ == step::resolving    ? "the host name was not resolved"
                           : step_ == step::connecting ? "no answer"
                           : step_ == step::tls        ? "no TLS handshake"
                                                       : "no hello";
        return fail(
            errc::unreachable, ETIMEDOUT,
            fmt::format("cannot reach {}: {} within {} ms", target_, what, setting_.limit.count()));
    });
}

}  // namespace amalgam::detail
