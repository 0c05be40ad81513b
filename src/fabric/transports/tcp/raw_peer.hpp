#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>

#include "fabric/sockets/socket_address.hpp"
#include "fabric/transports/tcp/hello.hpp"

namespace amalgam::detail {

/// For tests: the far end of a connection, without a port. Calls block.
class tcp_raw_peer {
public:
    /// Connects to a port. Failure: throws std::runtime_error.
    explicit tcp_raw_peer(const std::string& address)
        : tcp_raw_peer(address, uri::parse(address)) {}
    explicit tcp_raw_peer(unique_fd connected) : socket_(std::move(connected)) {}

    int fd() const noexcept { return socket_.get(); }

    /// False: the other side has closed the connection.
    bool send(const_bytes bytes) {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0) return false;
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        }
        return true;
    }
    bool send(std::string_view text) { return send(as_bytes_of(text)); }
    bool send_frame(frame_header header, const_bytes payload) {
        header.bytes = static_cast<std::uint32_t>(payload.size());
        return send(to_wire(header)) && send(payload);
    }

    /// Returns available data, at least a byte; empty: the other side has closed the connection.
    std::string receive() {
        char some[4096];
        const ssize_t got = ::recv(fd(), some, sizeof some, 0);
        return got > 0 ? std::string(some, static_cast<std::size_t>(got)) : std::string();
    }
    bool has_something() const {
        pollfd handle{fd(), POLLIN, 0};
        return ::poll(&handle, 1, 0) == 1;
    }

    /// Sends a hello and waits for the reply. False: there was none.
    bool shake_hands(const hello& ours = {.incarnation = 77}) {
        return send(encoded_hello(ours).bytes()) && hear_hello();
    }
    bool hear_hello() {
        hello_reader reader;
        for (;;) {
            pollfd handle{fd(), POLLIN, 0};
            ::poll(&handle, 1, -1);
            const auto now = reader.read(fd());
            theirs = reader.result();
            if (now != hello_reader::state::starving) return now == hello_reader::state::complete;
        }
    }
    /// Waits until the other side's kernel has everything sent.
    void wait_until_delivered() const {
        int left = 1;
        while (::ioctl(fd(), TIOCOUTQ, &left) == 0 && left > 0)
            ::poll(nullptr, 0, 1);
    }
    /// Waits until the other side closes the connection.
    void wait_for_the_end() {
        while (!receive().empty()) {
        }
    }

    hello theirs;

private:
    tcp_raw_peer(const std::string& address, const uri& where) {
        const auto to = socket_address::numeric(where.host, where.port.value());
        socket_.reset(::socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        int on = 1;
        ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (::connect(fd(), to->data(), to->bytes()) != 0)
            throw std::runtime_error("cannot connect to " + address);
    }

    unique_fd socket_;
};

/// For tests: listens on loopback, without a port.
class raw_listener {
public:
    explicit raw_listener(int backlog = 16, const std::string& host = "127.0.0.1",
                          std::uint16_t port = 0)
        : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const auto any = socket_address::numeric(host, port);
        if (::bind(socket_.get(), any->data(), any->bytes()) != 0 ||
            ::listen(socket_.get(), backlog) != 0)
            throw std::runtime_error("cannot listen on the loopback address");
    }
    std::string address() const { return socket_address::near_end(socket_.get()).uri(); }
    int fd() const noexcept { return socket_.get(); }
    tcp_raw_peer accept() {
        return tcp_raw_peer(unique_fd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    }
    bool has_caller() const {
        pollfd handle{socket_.get(), POLLIN, 0};
        return ::poll(&handle, 1, 0) == 1;
    }

private:
    unique_fd socket_;
};

}  // namespace amalgam::detail
