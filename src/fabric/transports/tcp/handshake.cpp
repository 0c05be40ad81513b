#include "fabric/transports/tcp/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <fmt/format.h>

namespace amalgam::detail {

handshake::handshake(const handshake_setting& setting, event_source& source, std::string target)
    : setting_(setting),
      source_(source),
      target_(std::move(target)),
      accepted_(false),
      step_(step::resolving),
      end_(clock::steady().now() + setting.limit),
      deadline_(end_) {}

handshake::handshake(const handshake_setting& setting, event_source& source, std::string target,
                     unique_fd accepted)
    : handshake(setting, source, std::move(target)) {
    accepted_ = true;
    step_ = step::hello;
    socket_ = std::move(accepted);
    setting_.events.watch(socket_.get(), source_, events_of_a_connection);
}

void handshake::abandon() noexcept {
    if (socket_) setting_.events.forget(socket_.get());
    socket_.reset();
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
        if (setting_.events.watch(socket_.get(), source_, events_of_a_connection | EPOLLOUT)) {
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
    step_ = step::hello;
    deadline_ = end_;
    if (!say_hello()) return dial_next(errno);
    setting_.events.change(socket_.get(), source_, events_of_a_connection);
    return state::waiting;
}

bool handshake::say_hello() noexcept {
    // All or nothing: the buffer of a new socket has room for it.
    const encoded_hello wire(setting_.ours);
    const ssize_t sent = ::send(socket_.get(), wire.bytes().data(), wire.bytes().size(),
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent == static_cast<ssize_t>(wire.bytes().size());
}

handshake::state handshake::ready(std::uint32_t events) noexcept {
    if (!socket_) return state::waiting;  // An event of an abandoned attempt.
    return guarded([&] {
        if (step_ == step::connecting) {
            if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0) return state::waiting;
            const state now = connected();
            if (now != state::waiting || step_ != step::hello) return now;
        }
        return read_hello();
    });
}

handshake::state handshake::read_hello() {
    switch (reader_.read(socket_.get())) {
        case hello_reader::state::starving:
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
    return state::complete;
}

handshake::state handshake::late(clock::time_point now) noexcept {
    return guarded([&] {
        if (step_ == step::connecting && now < end_) return dial_next(ETIMEDOUT);
        const char* what = step_ == step::resolving    ? "the host name was not resolved"
                           : step_ == step::connecting ? "no answer"
                                                       : "no hello";
        return fail(
            errc::unreachable, ETIMEDOUT,
            fmt::format("cannot reach {}: {} within {} ms", target_, what, setting_.limit.count()));
    });
}

}  // namespace amalgam::detail
