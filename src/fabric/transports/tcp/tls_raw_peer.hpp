#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include <poll.h>

#include "fabric/transports/tcp/raw_peer.hpp"
#include "fabric/trust/tls/tls_testing.hpp"

namespace amalgam::detail {

/// For tests: as tcp_raw_peer, with TLS, all of which OpenSSL does. Calls block, except try_step().
class tls_raw_peer {
public:
    /// Connects to a port, whose host it does not check.
    tls_raw_peer(const std::string& address, SSL_CTX& context)
        : tls_raw_peer(tcp_raw_peer("tcp" + address.substr(address.find("://"))), context,
                       tls_session::side::connecting) {}
    tls_raw_peer(tcp_raw_peer at, SSL_CTX& context, tls_session::side side)
        : plain_(std::move(at)),
          session_(std::make_unique<tls_session>(context, side, plain_.fd(), *record_)) {
        session_->leave_records_to_openssl();
    }

    int fd() const noexcept { return plain_.fd(); }
    tcp_raw_peer& plain() noexcept { return plain_; }
    tls_session& session() noexcept { return *session_; }

    /// One step of the handshake, without waiting.
    tls_session::state try_step() { return session_->shake_hands(); }
    /// False: it failed.
    bool shake_hands_of_tls() {
        for (;;) {
            const auto now = try_step();
            if (now != tls_session::state::waiting) return now == tls_session::state::complete;
            wait(POLLIN);
        }
    }
    bool send(const_bytes bytes) {
        while (!bytes.empty()) {
            const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
            int error = 0;
            bytes = bytes.subspan(session_->write({&piece, 1}, error));
            if (error != 0) return false;
            if (session_->has_pending()) wait(POLLOUT);
        }
        while (!session_->drain()) {
            if (session_->write_error() != 0) return false;
            wait(POLLOUT);
        }
        return true;
    }
    bool send(std::string_view text) { return send(as_bytes_of(text)); }
    bool send_frame(frame_header header, const_bytes payload) {
        header.bytes = static_cast<std::uint32_t>(payload.size());
        return send(to_wire(header)) && send(payload);
    }
    std::string receive() {
        char some[4096];
        const iovec into{some, sizeof some};
        for (;;) {
            const ssize_t got = session_->read({&into, 1}, false);
            if (got < 0 && errno == EAGAIN) {
                if (session_->drained()) wait(POLLIN);
                continue;
            }
            return got > 0 ? std::string(some, static_cast<std::size_t>(got)) : std::string();
        }
    }
    bool shake_hands(const hello& ours = {.incarnation = 77}) {
        return send(encoded_hello(ours).bytes()) && hear_hello();
    }
    bool hear_hello() {
        hello_reader reader;
        for (;;) {
            const auto now = reader.read(fd(), session_.get());
            theirs = reader.result();
            if (now != hello_reader::state::starving) return now == hello_reader::state::complete;
            if (session_->drained()) wait(POLLIN);
        }
    }
    void wait_for_the_end() {
        while (!receive().empty()) {
        }
    }

    hello theirs;

private:
    void wait(short what) const {
        pollfd handle{fd(), what, 0};
        ::poll(&handle, 1, -1);
    }

    std::unique_ptr<tls_record> record_ = std::make_unique<tls_record>();
    tcp_raw_peer plain_;
    std::unique_ptr<tls_session> session_;
};

}  // namespace amalgam::detail
