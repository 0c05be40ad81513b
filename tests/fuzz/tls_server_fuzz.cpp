#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/err.h>

#include <amalgam/core/status.hpp>
#include <amalgam/fabric/extension/tls_server.hpp>

#include "fabric/trust/tls/tls_testing.hpp"
#include "fuzz/fuzz.hpp"

// What comes to an HTTPS address: OpenSSL's client, in the hands of who is between it and us. The
// input's first byte says which client it is. Each step is two bytes, what becomes of what the
// client has sent and how much of it, with the text of those that have one behind them.
namespace amalgam::fuzz {

namespace {

using namespace detail;

enum does : unsigned {
    passes,
    passes_some,
    changes_a_bit,
    leaves_out,
    sends_bytes,
    says,  ///< The client, which changes its key before if bit 3 is set.
    ends,
    answers
};

enum client_kind : unsigned { plain, of_http_1, of_http_2, of_tls_1_2 };

SSL_CTX& context_of(client_kind which) {
    static const auto all = [] {
        std::array<ssl_context_ptr, 4> made;
        for (auto& each : made)
            each.reset(SSL_CTX_new(TLS_client_method()));
        const auto speaks = [](SSL_CTX& one, std::string_view protocol) {
            SSL_CTX_set_alpn_protos(&one, reinterpret_cast<const unsigned char*>(protocol.data()),
                                    static_cast<unsigned>(protocol.size()));
        };
        speaks(*made[of_http_1], "\x08http/1.1");
        speaks(*made[of_http_2], "\x02h2");
        SSL_CTX_set_max_proto_version(made[of_tls_1_2].get(), TLS1_2_VERSION);
        return made;
    }();
    return *all[which];
}

std::unique_ptr<tls_server_end> accepted() {
    static const test_lab lab;
    static tls_server server(lab.trust, tls_server::clients::any);
    return server.accept();
}

class call {
public:
    explicit call(client_kind which) : which_(which), ssl_(SSL_new(&context_of(which))) {
        SSL_set_bio(ssl_.get(), from_server_, to_server_);
        SSL_set_connect_state(ssl_.get());
        listen();
    }

    /// One step; returns how many bytes of `input` it has used.
    std::size_t go_on(const_bytes input) {
        const auto first = std::to_integer<unsigned>(input[0]);
        const std::size_t second = input.size() > 1 ? std::to_integer<unsigned>(input[1]) : 0;
        const std::size_t some = std::min(second + (first >> 4) * 256, sent_.size());
        const const_bytes behind = input.subspan(std::min<std::size_t>(2, input.size()));
        const std::string text(reinterpret_cast<const char*>(behind.data()),
                               std::min(second, behind.size()));
        switch (does{first & 7u}) {
            case passes:
                return take(sent_.size()), 1;
            case passes_some:
                return take(some), 2;
            case changes_a_bit:
                if (some == sent_.size()) return 2;
                is_whole_ = false;
                sent_[some] = static_cast<char>(sent_[some] ^ (1 << (first & 3)));
                return 2;
            case leaves_out:
                is_whole_ = is_whole_ && some == 0;
                sent_.erase(0, some);
                return 2;
            case sends_bytes:
                return send(text), 2 + text.size();
            case says:
                return say(text, (first & 8) != 0), 2 + text.size();
            case ends:
                if (SSL_is_init_finished(ssl_.get()) == 1) has_ended_ = true;
                (void)SSL_shutdown(ssl_.get());
                return listen(), 1;
            case answers:
                return answer(text, (first & 8) != 0), 2 + text.size();
        }
        return 1;
    }

    void check() {
        for (int i = 0; i < 4; ++i)
            take(sent_.size());
        require(which_ != of_tls_1_2 || (got_.empty() && (is_over_ || !is_whole_)),
                "nobody is served who speaks an older TLS");
        if (!is_whole_ || which_ == of_tls_1_2) return;
        require(!is_over_, "a client that does what it should is served");
        require(got_ == said_, "all that was said arrives");
        require(heard_ == answered_, "and so does what is answered");
        if (SSL_is_init_finished(ssl_.get()) != 1) return;
        const unsigned char* chosen = nullptr;
        unsigned bytes = 0;
        SSL_get0_alpn_selected(ssl_.get(), &chosen, &bytes);
        require(bytes == (which_ == of_http_1 ? 8u : 0u), "who asks for HTTP 1.1 is told of it");
    }

private:
    void take(std::size_t bytes) {
        if (std::min(bytes, sent_.size()) == 0) return;
        const std::string received = sent_.substr(0, bytes);
        sent_.erase(0, bytes);
        std::string more, to_send;
        const auto taken = end_->take(received, more, to_send);
        require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
        require(taken || (taken.code() == errc::unreachable && !taken.sentence().empty()),
                "what ends is told in a sentence");
        require(!is_over_ || (!taken && more.empty()), "nothing comes behind the end");
        is_over_ = is_over_ || !taken;
        got_ += more;
        require(said_.starts_with(got_), "only what was said arrives, in its order");
        hear(to_send);
    }
    void send(const std::string& text) {
        if (text.empty()) return;
        const bool is_behind_end = has_ended_ && is_whole_ && sent_.empty();
        is_whole_ = false;
        sent_.insert(0, text);
        take(text.size());
        require(!is_behind_end || is_over_, "what comes behind the client's end is refused");
    }
    void hear(const std::string& to_send) {
        if (!to_send.empty())
            BIO_write(from_server_, to_send.data(), static_cast<int>(to_send.size()));
        listen();
        require(answered_.starts_with(heard_), "only what was answered arrives");
    }
    /// The client goes on, as far as it can.
    void listen() {
        std::array<char, 4096> part;
        std::size_t bytes = 0;
        while (SSL_read_ex(ssl_.get(), part.data(), part.size(), &bytes) == 1)
            heard_.append(part.data(), bytes);
        ERR_clear_error();
        for (int got = 0; (got = BIO_read(to_server_, part.data(), part.size())) > 0;)
            sent_.append(part.data(), static_cast<std::size_t>(got));
    }
    void say(const std::string& text, bool with_new_key) {
        if (SSL_is_init_finished(ssl_.get()) != 1 || has_ended_) return;
        if (with_new_key) SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED);
        std::size_t written = 0;
        if (!text.empty() && SSL_write_ex(ssl_.get(), text.data(), text.size(), &written) == 1)
            said_ += text;
        listen();
    }
    void answer(const std::string& text, bool is_last) {
        if (got_.empty()) return;
        std::string to_send;
        try {
            end_->put(text, to_send);
            answered_ += text;
        } catch (const error& why) {
            require(why.code() == errc::unreachable && (is_over_ || is_answered_),
                    "what cannot be answered any more is refused");
        }
        if (is_last) {
            end_->end(to_send);
            is_answered_ = true;
        }
        require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
        hear(to_send);
    }

    const client_kind which_;
    std::unique_ptr<tls_server_end> end_ = accepted();
    openssl_ptr<SSL> ssl_;
    BIO* const from_server_ = BIO_new(BIO_s_mem());  // The SSL's own, as the next.
    BIO* const to_server_ = BIO_new(BIO_s_mem());
    std::string sent_;  ///< By the client, and not passed on yet.
    std::string said_, got_;
    std::string answered_, heard_;
    bool has_ended_ = false;    ///< The client.
    bool is_answered_ = false;  ///< We have ended.
    bool is_over_ = false;      ///< It has failed.
    bool is_whole_ = true;      ///< All was passed on as it was sent, so far.
};

}  // namespace

void run_one(const_bytes input) {
    if (input.empty()) return;
    call one(client_kind{std::to_integer<unsigned>(input[0]) & 3u});
    const_bytes left = input.subspan(1);
    for (int steps = 0; !left.empty() && steps < 60; ++steps)
        left = left.subspan(std::min(left.size(), one.go_on(left)));
    one.check();
}

std::span<const std::string_view> seeds() {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 10> all{
        "\0\0\0\5\5GET /\0\7\3200"sv,
        "\1\0\0\5\2ab\0\xf\2ok\5\1c\0\7\1x"sv,  // It goes on behind our end.
        "\2\0\0\xd\1a\0\xd\1b\0\7\2ok"sv,       // With new keys.
        "\3\0\0"sv,
        "\0\1\5\1\xff\0\0\5\1a\1\7\0\6\0"sv,  // In pieces.
        "\0\x2\x9\0"sv,                       // A bit of the first record,
        "\0\0\x12\1\0"sv,                     // and of the last of the handshake.
        "\0\0\0\5\3ask\6\0\4\4more"sv,        // More behind its end.
        "\0\0\0\4\x7\x15\3\3\0\2\1\0"sv,      // An alert that nothing protects.
        "\0\4\x12GET / HTTP/1.1\r\n\r\n"sv};
    return all;
}

}  // namespace amalgam::fuzz
