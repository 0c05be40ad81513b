#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/packets/introduced_carrier.hpp"
#include "fabric/packets/introduction.hpp"
#include "fabric/transports/tcp/tcp.hpp"

/// A complete packet plug-in without a library: packets as datagrams between sockets named by the
/// kernel. So sanitizers see all of it.
namespace amalgam::adversary {

constexpr std::size_t datagram_packet_bytes = 2048;

/// A socket with a name, to which others send.
class datagram_socket {
public:
    datagram_socket() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        sockaddr_un at{};
        at.sun_family = AF_UNIX;
        socklen_t bytes = sizeof at.sun_family;  // The kernel chooses a name.
        if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), bytes) != 0)
            throw error(errc::unreachable, "no name for a socket");
        bytes = sizeof at;
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &bytes);
        const auto* first = reinterpret_cast<const std::byte*>(at.sun_path);
        name_.assign(first, first + bytes - offsetof(sockaddr_un, sun_path));
    }
    int fd() const noexcept { return socket_.get(); }
    const std::vector<std::byte>& name() const noexcept { return name_; }

    /// False: see errno.
    bool send(const std::vector<std::byte>& name, std::uint64_t id, const_bytes packet) const {
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        const std::size_t bytes = std::min(name.size(), sizeof to.sun_path);
        if (bytes > 0) std::memcpy(to.sun_path, name.data(), bytes);
        std::byte head[8];
        store_le(head, id);
        iovec pieces[] = {{head, sizeof head},
                          {const_cast<std::byte*>(packet.data()), packet.size()}};
        msghdr out{};
        out.msg_name = &to;
        out.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes);
        out.msg_iov = pieces;
        out.msg_iovlen = 2;
        return ::sendmsg(socket_.get(), &out, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    }

private:
    unique_fd socket_;
    std::vector<std::byte> name_;
};

class datagram_carrier final : public detail::introduced_carrier {
public:
    static constexpr const char* scheme = "ofi+datagram";  // As parsed from URIs.

    datagram_carrier(std::unique_ptr<port> tcp, bool caller_first)
        : introduced_carrier({std::move(tcp), scheme}), caller_first_(caller_first) {
        sleep_also_on(socket_.fd());
    }
    ~datagram_carrier() override { end_introductions(); }

protected:
    struct link final : detail::introduced_link {
        posted send(packet& one) noexcept override {
            if (!is_open() || failed) return posted::full;
            if (home->socket_.send(to, their_id(), {one.data, one.bytes})) {
                count_sent();
                return posted::done;
            }
            if (errno == EAGAIN || errno == ENOBUFS)
                full = true;
            else
                failed = true;
            return posted::full;
        }
        datagram_carrier* home = nullptr;
        std::vector<std::byte> to;
        bool full = false, failed = false;
    };

    const_bytes own_name(const detail::introduced_link&) const noexcept override {
        return socket_.name();
    }
    std::string explain_paths() const override { return "datagrams"; }
    std::unique_ptr<detail::introduced_link> make_link() override {
        auto made = std::make_unique<link>();
        made->home = this;
        open_.reserve(open_.size() + 1);
        return made;
    }
    status open_path(detail::introduced_link& one, const_bytes name) noexcept override try {
        auto& opened = static_cast<link&>(one);
        if (name.empty() || name.size() > sizeof sockaddr_un::sun_path)
            return {errc::disconnected, EPROTO};
        opened.to.assign(name.begin(), name.end());
        open_.push_back(&opened);
        return {};
    } catch (const std::bad_alloc&) {
        return {errc::no_memory, ENOMEM};
    }
    bool caller_goes_first() const noexcept override { return caller_first_; }
    void close_path(detail::introduced_link& one, bool) noexcept override {
        std::erase(open_, static_cast<link*>(&one));
    }
    void release_path(std::unique_ptr<detail::introduced_link>) noexcept override {}
    std::size_t move_packets(std::size_t budget) noexcept override {
        std::size_t came = 0;
        for (; came < budget; ++came) {
            std::byte in[8 + datagram_packet_bytes];
            const ssize_t got = ::recv(socket_.fd(), in, sizeof in, MSG_DONTWAIT);
            if (got < 0) break;
            if (got < 8) continue;
            if (auto* to = find(load_le<std::uint64_t>(in)))
                arrived(*to, {in + 8, static_cast<std::size_t>(got) - 8});
        }
        // An upcall may close others: start over each time.
        for (bool again = true; again;) {
            again = false;
            for (link* one : open_) {
                if (one->failed) {
                    lost(*one, {errc::disconnected, ECONNREFUSED});
                } else if (std::exchange(one->full, false)) {
                    events().room(*one);
                } else {
                    continue;
                }
                again = !one->full;
                break;
            }
        }
        return came;
    }
    bool arm_paths() noexcept override {
        return std::none_of(open_.begin(), open_.end(),
                            [](link* one) { return one->full || one->failed; });
    }

private:
    bool caller_first_;
    datagram_socket socket_;
    std::vector<link*> open_;
};

/// A port over loopback datagrams.
inline std::unique_ptr<port> open_datagram_port(bool caller_first) {
    port_options options;
    auto tcp = detail::make_tcp_transport()->open(uri::parse("tcp://127.0.0.1:0"), options);
    return make_packet_port(
        std::make_unique<datagram_carrier>(std::move(tcp).value(), caller_first),
        {.transport = "datagram", .packet_bytes = datagram_packet_bytes, .listens = true}, options);
}

}  // namespace amalgam::adversary
