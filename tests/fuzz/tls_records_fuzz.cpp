#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/err.h>

#include "fabric/trust/tls/records_testing.hpp"
#include "fuzz/fuzz.hpp"

// What a peer that was let in sends: records that are protected as they should be with anything in
// them, and bytes that are none. The input's first byte says which side it is; then come what it
// does, how much of it, and the text.
namespace amalgam::fuzz {

namespace {

using namespace detail;

enum does : unsigned {
    says_data,
    says_alert,
    says_handshake,
    says_other,  ///< Of the kind that the text begins with.
    sends_bytes,
    renews_key,
    changes_a_bit,  ///< Of a record of data.
    waits           ///< Until it was heard.
};

/// Hands the input out, piece by piece; zeros behind its end.
class pieces {
public:
    explicit pieces(const_bytes all) noexcept : left_(all) {}
    bool is_over() const noexcept { return left_.empty(); }
    unsigned byte() noexcept {
        if (left_.empty()) return 0;
        const auto first = std::to_integer<unsigned>(left_.front());
        left_ = left_.subspan(1);
        return first;
    }
    std::string text(std::size_t bytes) {
        const std::size_t some = std::min(bytes, left_.size());
        std::string made(reinterpret_cast<const char*>(left_.data()), some);
        left_ = left_.subspan(some);
        made.resize(bytes);
        return made;
    }

private:
    const_bytes left_;
};

/// The peer, and what it must be heard to say.
class talk {
public:
    explicit talk(bool is_client)
        : peer_(is_client ? tls_session::side::accepting : tls_session::side::connecting) {}

    void go_on(pieces& from) {
        const unsigned first = from.byte();
        const std::size_t bytes = from.byte() * (first & 8 ? 64u : 1u);
        // The socket must have room.
        if ((waiting_ += bytes + 100) > 60'000) hear();
        switch (const std::string text = from.text(bytes); does{first & 7u}) {
            case says_data:
                if (is_whole_) said_ += text;
                return peer_.say(23, text);
            case says_alert:
                return peer_.say(21, text);
            case says_handshake:
                is_plain_ = false;
                return peer_.say(22, text);
            case says_other:
                return say_other(text);
            case sends_bytes:
                if (!text.empty()) is_whole_ = false;
                return peer_.send(as_bytes_of(text));
            case renews_key:
                peer_.say(22, {"\x18\0\0\1\0", 5});
                return peer_.renew_key();
            case changes_a_bit: {
                auto record = peer_.made(23, text);
                is_whole_ = false;
                // Not of the length, which may make it wait for more.
                const std::size_t at = first & 16 ? 0 : 5 + bytes % (record.size() - 5);
                record[at] ^= std::byte{1} << (first >> 5);
                return peer_.send(record);
            }
            case waits:
                return hear();
        }
    }
    void hear() {
        waiting_ = 0;
        std::string some;
        const std::string how = peer_.heard(&some);
        require(!how.empty(), "what ends is told in a sentence");
        require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
        require(!is_over_ || some.empty(), "nothing comes behind the end");
        is_over_ = is_over_ || how != "goes on";
        got_ += some;
        require(said_.starts_with(got_), "only what was said arrives, in its order");
        if (is_over_) {
            (void)peer_.answered();
            const bool may_answer = how == "the end" || how.starts_with("it sent more than");
            require(may_answer || !peer_.ours().write_whole(as_bytes_of(std::string_view("x"))),
                    "nothing is sent behind an alert");
        } else if (is_whole_ && is_plain_) {
            require(got_ == said_, "all that was said arrives");
        }
    }

private:
    /// Of the kind that the text begins with; of 0, padded: the kind is the last byte that is none.
    void say_other(std::string_view text) {
        is_plain_ = false;
        if (text.empty()) return;
        const auto kind = static_cast<unsigned char>(text[0]);
        text.remove_prefix(1);
        std::string_view inside = text;
        auto real = kind;
        if (kind == 0) {
            inside = inside.substr(0, inside.find_last_not_of('\0') + 1);
            if (!inside.empty()) real = static_cast<unsigned char>(inside.back());
            inside = inside.substr(0, inside.empty() ? 0 : inside.size() - 1);
        }
        if (real == 23 && is_whole_) said_ += inside;
        peer_.say(kind, std::string(text));
    }

    liar peer_;
    std::string said_, got_;
    bool is_whole_ = true;  ///< Only records, all of them right, so far.
    bool is_plain_ = true;  ///< And none that may begin a message which others go on with.
    bool is_over_ = false;
    std::size_t waiting_ = 0;  ///< Bytes, about, that were not heard yet.
};

void check_key(const_bytes input) {
    // A record under a key of its own: only what was protected is opened, and once.
    static const ssl_context_ptr context{SSL_CTX_new(TLS_method())};
    static const openssl_ptr<SSL> any{SSL_new(context.get())};
    const unsigned char aes_128_gcm[] = {0x13, 0x01};
    const SSL_CIPHER& cipher = *SSL_CIPHER_find(any.get(), aes_128_gcm);
    traffic_secret secret;
    (void)secret.read_hex(std::string(64, '7'));
    const auto by = traffic_key::make(cipher, secret, traffic_key::use::to_open);
    const std::unique_ptr<std::byte[]> exact(new std::byte[input.size()]);
    if (!input.empty()) std::memcpy(exact.get(), input.data(), input.size());
    require(by->open({exact.get(), input.size()}).kind == record_kind::none,
            "nobody makes a record without the key");
    traffic_secret digits;
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    require(!digits.read_hex(text) || 2u * digits.size == text.size(), "digits are read whole");
}

}  // namespace

void run_one(const_bytes input) {
    check_key(input);
    pieces from(input);
    talk with((from.byte() & 1u) != 0);
    for (int steps = 0; !from.is_over() && steps < 200; ++steps)
        with.go_on(from);
    with.hear();
}

std::span<const std::string_view> seeds() {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 8> all{
        "\1\0\5hello\0\5world\7\0\5\0\0\5again"sv,
        "\0\2\x9\4\0\0\5abcde\0\1x"sv,                  // A wrong ticket.
        "\0\0\1x\2\x7\4\0\0\xaxyz\2\x7yyyyyyy\0\1x"sv,  // One in two records.
        "\1\0\1x\2\5\x18\0\0\1\1\0\1y"sv,               // A new key that is not used.
        "\1\1\2\1\x5a\0\1x\1\2\1\0\0\1y"sv,             // The end, after one that was not.
        "\1\10\3\6\2x"sv,
        "\1\4\5\x17\x03\x03\0\x20\0\1x"sv,
        "\0\3\3\x63yx\0\1x"sv};
    return all;
}

}  // namespace amalgam::fuzz
