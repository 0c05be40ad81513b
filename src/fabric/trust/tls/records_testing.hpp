#pragma once

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <openssl/err.h>
#include <sys/socket.h>

#include <amalgam/core/unique_fd.hpp>

#include "fabric/trust/tls/tls_session.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "fabric/trust/tls/traffic_key.hpp"

namespace amalgam::detail {

/// For tests: `ours` at one end; at the other what only OpenSSL has made.
struct mixed_pair {
    using state = tls_session::state;
    using side = tls_session::side;

    mixed_pair(SSL_CTX& context, side which) {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) != 0)
            throw std::runtime_error("no sockets");
        near_end.reset(both[0]);
        far_end.reset(both[1]);
        ours.emplace(context, which, both[0], record);
        theirs.reset(SSL_new(&context));
        SSL_set_fd(theirs.get(), both[1]);
        if (which == side::connecting)
            SSL_set_accept_state(theirs.get());
        else
            SSL_set_connect_state(theirs.get());
    }

    bool shake_hands() {
        bool theirs_done = false;
        state mine = state::waiting;
        while (mine == state::waiting || !theirs_done) {
            if (mine == state::waiting) mine = ours->shake_hands();
            if (mine == state::failed) return false;
            if (theirs_done) continue;
            const int now = SSL_do_handshake(theirs.get());
            if (now != 1 && SSL_get_error(theirs.get(), now) != SSL_ERROR_WANT_READ) return false;
            theirs_done = now == 1;
        }
        return true;
    }
    bool send_ours(const std::string& text) {
        for (std::size_t at = 0; at < text.size();) {
            const std::string left = text.substr(at);
            const iovec piece{const_cast<char*>(left.data()), left.size()};
            int error = 0;
            at += ours->write({&piece, 1}, error);
            if (error != 0) return false;
            pump_theirs();
            (void)ours->drain();
        }
        return true;
    }
    void pump_theirs() {
        char some[20'000];
        for (int got; (got = SSL_read(theirs.get(), some, sizeof some)) > 0;)
            heard.append(some, static_cast<std::size_t>(got));
        ERR_clear_error();
    }
    std::string receive_ours(std::size_t most) {
        std::string some(most, ' ');
        const iovec into{some.data(), some.size()};
        const ssize_t got = ours->read({&into, 1}, false);
        last_error = got < 0 ? errno : 0;
        some.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        return some;
    }
    /// Whether everything that the other side writes arrives.
    bool hears(const std::string& text) {
        std::string got;
        for (std::size_t at = 0; at < text.size();) {
            const auto some = static_cast<int>(std::min<std::size_t>(text.size() - at, 20'000));
            const int gone = SSL_write(theirs.get(), text.data() + at, some);
            if (gone <= 0) return false;
            at += static_cast<std::size_t>(gone);
            while (got.size() < at) {
                const std::string more = receive_ours(7'001);
                if (more.empty() && last_error != EAGAIN) return false;
                got += more;
            }
        }
        return got == text;
    }
    bool is_heard(const std::string& text) {
        heard.clear();
        if (!send_ours(text)) return false;
        pump_theirs();
        return heard == text;
    }

    tls_record record;
    unique_fd near_end, far_end;
    std::optional<tls_session> ours;
    openssl_ptr<SSL> theirs;
    std::string heard;
    int last_error = 0;
};

/// For tests: a peer that is let in, and lies. What it sends is protected as it should be, and
/// anything may be in it.
class liar {
public:
    using side = tls_session::side;

    explicit liar(side of_ours) {
        static liar* current;
        current = this;
        for (const ssl_context_ptr* each : {&ours_, &context_})
            SSL_CTX_set_num_tickets(each->get(), 0);
        SSL_CTX_set_keylog_callback(context_.get(), [](const SSL*, const char* line) {
            const std::string_view all(line);
            const bool of_client = all.starts_with("CLIENT_TRAFFIC_SECRET_0 ");
            if (!of_client && !all.starts_with("SERVER_TRAFFIC_SECRET_0 ")) return;
            if (of_client == (current->which_ == side::accepting))
                (void)current->secret_.read_hex(all.substr(all.rfind(' ') + 1));
        });
        which_ = of_ours;
        both_.emplace(*ours_, of_ours);
        both_->theirs.reset(SSL_new(context_.get()));
        SSL_set_fd(both_->theirs.get(), both_->far_end.get());
        if (of_ours == side::connecting)
            SSL_set_accept_state(both_->theirs.get());
        else
            SSL_set_connect_state(both_->theirs.get());
        if (!both_->shake_hands()) throw std::runtime_error("no handshake");
        key_ = traffic_key::make(*SSL_get_current_cipher(both_->theirs.get()), secret_,
                                 traffic_key::use::to_protect);
    }

    std::vector<std::byte> made(int kind, const std::string& text) {
        std::vector<std::byte> record(text.size() + traffic_key::more_bytes);
        if (!key_->protect(static_cast<record_kind>(kind), as_bytes_of(text), record.data()))
            throw std::runtime_error("no record");
        return record;
    }
    void send(const_bytes bytes) {
        (void)::send(both_->far_end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    void say(int kind, const std::string& text) { send(made(kind, text)); }
    void renew_key() {
        if (!key_->next()) throw std::runtime_error("no key");
    }
    /// Of what it sends.
    tls_session& ours() { return *both_->ours; }
    /// By one read.
    std::string received() { return both_->receive_ours(20'000); }
    /// Reads until there is nothing, or no more will be: what became of it.
    std::string heard(std::string* all = nullptr) {
        for (;;) {
            const std::string some = both_->receive_ours(5000);
            if (all != nullptr) *all += some;
            const bool has_more = both_->last_error == EAGAIN && !both_->ours->drained();
            if (!some.empty() || has_more) continue;
            if (both_->last_error == EPROTO) return both_->ours->why().sentence;
            return both_->last_error == EAGAIN ? "goes on" : "the end";
        }
    }
    /// Bytes that ours sent since the handshake.
    std::size_t answered() {
        char some[1000];
        const ssize_t got = ::recv(both_->far_end.get(), some, sizeof some, MSG_DONTWAIT);
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }

private:
    static ssl_context_ptr context_of_all() {
        static const test_authority authority;
        static const test_certificate own = authority.issue();
        return bare_context(authority, &own);
    }

    ssl_context_ptr ours_ = context_of_all();
    ssl_context_ptr context_ = context_of_all();
    side which_{};
    traffic_secret secret_;
    std::optional<mixed_pair> both_;
    std::unique_ptr<traffic_key> key_;
};

}  // namespace amalgam::detail
