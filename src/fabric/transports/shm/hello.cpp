#include "fabric/transports/shm/hello.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fabric/transports/shm/memory/mapping.hpp"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace amalgam::detail {
namespace {

constexpr int backlog = 4096;
constexpr std::size_t max_descriptors = 2;

struct address {
    sockaddr_un at{};
    socklen_t bytes;

    address(std::string_view name, uid_t user) noexcept {
        at.sun_family = AF_UNIX;
        // A leading zero byte makes the name abstract: it is in no file system.
        char* const text = at.sun_path + 1;
        const int length =
            std::snprintf(text, sizeof at.sun_path - 1, "amalgam-shm/%u/%.*s",
                          static_cast<unsigned>(user), static_cast<int>(name.size()), name.data());
        bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       static_cast<std::size_t>(length));
    }
    const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&at); }
};
// Prefix, ten digits of a user id, a slash and the name.
static_assert(1 + 12 + 10 + 1 + uri::max_name_bytes < sizeof(sockaddr_un::sun_path));

unique_fd new_socket() noexcept {
    return unique_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// A hello being sent or received, with room for its descriptors.
struct envelope {
    iovec part;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(max_descriptors * sizeof(int))> beside{};
    msghdr header{};

    explicit envelope(shm_hello& said) noexcept : part{&said, sizeof said} {
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = beside.data();
        header.msg_controllen = beside.size();
    }
    envelope(const envelope&) = delete;
};

/// Takes the descriptors out of a received message; closes those not wanted.
std::array<unique_fd, max_descriptors> open_envelope(msghdr& header) noexcept {
    std::array<unique_fd, max_descriptors> found;
    std::size_t count = 0;
    for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
        if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t here = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < here; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(one) + i * sizeof fd, sizeof fd);
            unique_fd owned(fd);
            if (count < found.size()) found[count++] = std::move(owned);
        }
    }
    return found;
}

}  // namespace

void shm_hello::set_name(std::string_view given) noexcept {
    name_bytes = static_cast<std::uint32_t>(std::min(given.size(), sizeof name));
    std::memcpy(name, given.data(), name_bytes);
}

bool send_hello(int socket, const shm_hello& say, int pair, int registrations) noexcept {
    shm_hello copy = say;
    envelope out(copy);
    int fds[max_descriptors];
    std::size_t count = 0;
    if (pair >= 0) fds[count++] = pair;
    if (registrations >= 0) fds[count++] = registrations;
    out.header.msg_controllen = count == 0 ? 0 : CMSG_SPACE(count * sizeof(int));
    if (count > 0) {
        cmsghdr* beside = CMSG_FIRSTHDR(&out.header);
        beside->cmsg_level = SOL_SOCKET;
        beside->cmsg_type = SCM_RIGHTS;
        beside->cmsg_len = CMSG_LEN(count * sizeof(int));
        std::memcpy(CMSG_DATA(beside), fds, count * sizeof(int));
    }
    return ::sendmsg(socket, &out.header, MSG_NOSIGNAL | MSG_DONTWAIT) ==
           static_cast<ssize_t>(sizeof copy);
}

shm_hearing receive_hello(int socket, bool with_pair, shm_received_hello& into) noexcept {
    envelope in(into.said);
    ssize_t got = ::recvmsg(socket, &in.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // Told first of an end that left what we sent unread, even if an answer came before.
    if (got < 0 && errno == ECONNRESET)
        got = ::recvmsg(socket, &in.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) {
        const bool wait = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        return wait ? shm_hearing::nothing_yet : shm_hearing::ended;
    }
    auto fds = open_envelope(in.header);
    if (got == 0) return shm_hearing::ended;
    const shm_hello& said = into.said;
    if (got != static_cast<ssize_t>(sizeof said) || (in.header.msg_flags & MSG_TRUNC) != 0 ||
        said.magic != shm_hello::magic_value || said.name_bytes > sizeof said.name)
        return shm_hearing::nonsense;
    if (said.version != shm_version || said.refused != 0) return shm_hearing::heard;
    if (said.incarnation == 0) return shm_hearing::nonsense;

    std::size_t next = 0;
    if (with_pair) {
        into.pair = std::move(fds[next++]);
        if (!is_shm_memory(into.pair.get(), shm_pair_layout::bytes)) return shm_hearing::nonsense;
    }
    into.registrations = std::move(fds[next]);
    if (!is_shm_memory(into.registrations.get(), shm_registrations_layout::bytes))
        return shm_hearing::nonsense;
    return shm_hearing::heard;
}

shm_credentials who_is(int socket) noexcept {
    ucred facts{};
    socklen_t bytes = sizeof facts;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &facts, &bytes) != 0) return {};
    return {facts.pid, facts.uid == ::geteuid(), facts.uid, facts.gid, true};
}

unique_fd listen_at(std::string_view name) noexcept {
    unique_fd socket = new_socket();
    const address here(name, ::geteuid());
    if (!socket || ::bind(socket.get(), here.get(), here.bytes) != 0 ||
        ::listen(socket.get(), backlog) != 0)
        return {};
    return socket;
}

unique_fd connect_to(std::string_view name) noexcept {
    return connect_to(name, ::geteuid());
}

unique_fd connect_to(std::string_view name, uid_t user) noexcept {
    unique_fd socket = new_socket();
    const address there(name, user);
    if (!socket || ::connect(socket.get(), there.get(), there.bytes) != 0) return {};
    return socket;
}

bool still_there(int socket) noexcept {
    pollfd look{socket, POLLRDHUP, 0};
    return ::poll(&look, 1, 0) == 0;
}

}  // namespace amalgam::detail
