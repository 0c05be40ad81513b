#include "unix_carrier.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <amalgam/core.hpp>

using namespace amalgam;

namespace {

constexpr int backlog = 128;

std::optional<sockaddr_un> socket_name(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof name.sun_path) return std::nullopt;
    std::memcpy(name.sun_path, path.data(), path.size());
    return name;
}

unique_fd new_socket() {
    return unique_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

bool try_connect(int fd, const sockaddr_un& to) {
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
}

[[noreturn]] void fail(errc code, const std::string& path, const std::string& what) {
    throw error(status{code, errno},
                "uri \"unix://" + path + "\": " + what + "; example: unix:///tmp/server.sock");
}

/// A socket listening at `path`, replacing the name of a program that is gone.
unique_fd listen_at(const std::string& path) {
    const auto name = socket_name(path);
    if (!name) fail(errc::invalid, path, "the path is longer than 107 bytes");
    unique_fd socket = new_socket();
    const auto* at = reinterpret_cast<const sockaddr*>(&*name);
    int how = ::bind(socket.get(), at, sizeof *name);
    if (how != 0 && errno == EADDRINUSE && !try_connect(new_socket().get(), *name) &&
        errno == ECONNREFUSED) {
        ::unlink(path.c_str());
        how = ::bind(socket.get(), at, sizeof *name);
    }
    if (how != 0 || ::listen(socket.get(), backlog) != 0)
        fail(errno == EADDRINUSE ? errc::in_use : errc::invalid, path,
             std::string("cannot listen there: ") + std::strerror(errno));
    return socket;
}

}  // namespace

// ---- one connection

posted unix_link::send(packet& one) noexcept {
    if (!socket_ || was_full_) return posted::full;
    const ssize_t sent = ::send(socket_.get(), one.data, one.bytes, MSG_NOSIGNAL);
    if (sent >= 0) return posted::done;
    // Until epoll reports room, or loss of the peer.
    was_full_ = true;
    home_.watch(socket_.get(), this, EPOLLIN | EPOLLOUT);
    return posted::full;
}

void unix_link::close() noexcept {
    socket_.reset();  // Sent packets are in the kernel, and will arrive.
}

// ---- all of them

unix_carrier::unix_carrier(std::string path)
    : path_(std::move(path)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      buffer_(std::make_unique<std::byte[]>(packet_bytes)) {
    if (!epoll_) fail(errc::no_memory, path_, "out of file descriptors");
    if (path_.empty()) return;
    listener_ = listen_at(path_);
    watch(listener_.get(), nullptr, EPOLLIN);
}

unix_carrier::~unix_carrier() {
    if (listener_) ::unlink(path_.c_str());
}

std::string unix_carrier::address() const {
    return listener_ ? "unix://" + path_ : std::string();
}

std::string unix_carrier::explain() const {
    return listener_ ? "listens at the path " + path_ : "does not listen, as the URI names no path";
}

result<std::string> unix_carrier::canonical(std::string_view address) const {
    auto parsed = parse_uri(address);
    if (!parsed) return parsed.why();
    if (parsed->scheme != "unix" || !socket_name(parsed->name))
        return {errc::invalid, "uri \"" + std::string(address) +
                                   "\": expected unix:// and a path of at most 107 bytes; "
                                   "example: unix:///tmp/server.sock"};
    return "unix://" + parsed->name;
}

void unix_carrier::watch(int fd, void* owner, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = owner;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

unix_link& unix_carrier::add(unique_fd socket) {
    links_.push_back(std::make_unique<unix_link>(*this, std::move(socket)));
    unix_link& made = *links_.back();
    if (made.socket_) watch(made.socket_.get(), &made, EPOLLIN);
    return made;
}

result<packet_link*> unix_carrier::connect(std::string_view address) {
    unique_fd socket = new_socket();
    const auto name = socket_name(uri::parse(address).name);
    if (!socket || !try_connect(socket.get(), *name)) socket.reset();
    const bool connected = static_cast<bool>(socket);
    unix_link& made = add(std::move(socket));
    // A failed connection must not be reported from in here.
    made.failed_ = !connected;
    has_failed_ = has_failed_ || !connected;
    return static_cast<packet_link*>(&made);
}

void unix_carrier::release(packet_link& link) noexcept {
    std::erase_if(links_, [&](const auto& one) { return one.get() == &link; });
}

void unix_carrier::accept_callers() noexcept {
    for (;;) {
        unique_fd caller(
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!caller) return;
        unix_link& made = add(std::move(caller));
        if (!events_->accepted(made, "unix://")) release(made);
    }
}

std::size_t unix_carrier::read(unix_link& link, std::size_t budget) noexcept {
    std::size_t done = 0;
    // An upcall may close the link.
    for (; done < budget && link.socket_; ++done) {
        const ssize_t got = ::recv(link.socket_.get(), buffer_.get(), packet_bytes, 0);
        if (got < 0 && errno == EAGAIN) break;
        // The peer closed with packets of ours unread: its own last ones come after this error.
        if (got < 0 && errno == ECONNRESET) continue;
        if (got <= 0) {
            lose(link, {errc::disconnected, got < 0 ? errno : 0});
            return done + 1;
        }
        events_->received(link, {buffer_.get(), static_cast<std::size_t>(got)});
    }
    return done;
}

void unix_carrier::lose(unix_link& link, status why) noexcept {
    link.socket_.reset();
    events_->down(link, why);
}

std::size_t unix_carrier::progress(std::size_t budget) noexcept {
    std::size_t done = 0;
    if (std::exchange(has_failed_, false)) {
        for (std::size_t i = 0; i < links_.size(); ++i) {
            if (!std::exchange(links_[i]->failed_, false)) continue;
            lose(*links_[i], {errc::unreachable, ECONNREFUSED});
            ++done;
        }
    }
    std::array<epoll_event, 64> ready;
    const int count = ::epoll_wait(epoll_.get(), ready.data(), ready.size(), 0);
    for (int i = 0; i < count; ++i) {
        if (ready[i].data.ptr == nullptr) {
            accept_callers();
            continue;
        }
        auto& link = *static_cast<unix_link*>(ready[i].data.ptr);
        if (!link.socket_) continue;
        if ((ready[i].events & EPOLLOUT) != 0) {
            link.was_full_ = false;
            watch(link.socket_.get(), &link, EPOLLIN);
            events_->room(link);
        }
        if (done < budget) done += read(link, budget - done);
    }
    return done;
}
