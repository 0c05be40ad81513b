#include <array>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/err.h>

#include "fabric/sealing/introduced_testing.hpp"
#include "fabric/trust/tls/tls_testing.hpp"
#include "fuzz/fuzz.hpp"

// A handshake in packets, in the hands of who is between the two ends. The input's first byte says
// what keys they have; each byte behind it what becomes of the next packet of one of them, and a
// second one where, or how much of the input is sent in its place.
namespace amalgam::fuzz {

namespace {

using namespace detail;

enum does : unsigned {
    passes,
    passes_all,
    changes_a_bit,
    cuts,
    leaves_out,
    repeats,
    turns_around,  ///< It goes back to who sent it.
    sends_bytes
};

/// The keys of both ends; 2 and 3: of two that do not trust each other.
std::shared_ptr<const credentials> keys_of(unsigned which, bool is_caller) {
    static const test_lab lab, others;
    static const auto shared =
        credentials::from_text({.shared_keys = "node:" + std::string(64, '4') + "\n"});
    if (which == 0) return shared;
    return which != 1 && is_caller ? others.trust : lab.trust;
}

class wire_of_liar {
public:
    explicit wire_of_liar(unsigned keys)
        : are_friends_(keys < 2), caller_(keys_of(keys, true)), called_(keys_of(keys, false)) {
        caller_.connect();
        called_.accept();
        caller_.room();
    }

    /// One step; returns how many bytes of `input` it has used.
    std::size_t go_on(const_bytes input) {
        const auto first = std::to_integer<unsigned>(input[0]);
        const unsigned second = input.size() > 1 ? std::to_integer<unsigned>(input[1]) : 0;
        introduced_end& from = (first & 8) == 0 ? caller_ : called_;
        introduced_end& to = (first & 8) == 0 ? called_ : caller_;
        const does what{first & 7u};
        if (what == sends_bytes) {
            const auto bytes = input.subspan(std::min<std::size_t>(2, input.size()));
            const auto some = bytes.first(std::min<std::size_t>(second, bytes.size()));
            is_whole_ = false;
            to.receive({some.begin(), some.end()});
            return 2 + some.size();
        }
        if (what == passes_all) return carry(), 1;
        if (from.below->left.empty()) return 1;
        packet_bytes_of next = std::move(from.below->left.front());
        from.below->left.pop_front();
        if (what == passes) return to.receive(next), 1;
        is_whole_ = false;
        const std::size_t at = (first >> 4) * 256 + second;
        switch (what) {
            case changes_a_bit:
                next[at % next.size()] ^= std::byte{1} << (second & 7);
                to.receive(next);
                break;
            case cuts:
                next.resize(at % next.size());
                to.receive(next);
                break;
            case repeats:
                to.receive(next);
                to.receive(next);
                break;
            case turns_around:
                from.receive(next);
                break;
            default:  // Left out.
                break;
        }
        return 2;
    }

    void carry() { detail::carry(caller_, called_); }

    void check() {
        const auto here = secrets_of(caller_), there = secrets_of(called_);
        require(ERR_peek_error() == 0, "no error of OpenSSL is left for others to find");
        require(are_friends_ || (here == nullptr && there == nullptr),
                "nobody is let in who is not trusted");
        if (here != nullptr && there != nullptr)
            require(here->sending == there->receiving && here->receiving == there->sending,
                    "who is in between has no part in the keys");
        if (!is_whole_) return;
        require(are_friends_ == (here != nullptr && there != nullptr),
                "packets that arrive as they were sent introduce those who trust each other");
        require(caller_.events.packets.empty() && called_.events.packets.empty(),
                "nothing of the handshake is left for the port");
    }

private:
    /// Empty where there is no connection.
    static std::unique_ptr<link_secrets> secrets_of(introduced_end& end) {
        const auto& told = end.events;
        require(told.rooms + told.downs.size() <= 1, "a connection opens or fails, once");
        require(end.below->closes == static_cast<int>(told.downs.size()),
                "what has failed is closed below, once");
        auto secrets = end.here->take_secrets(*end.link);
        require((secrets != nullptr) == (told.rooms == 1), "there are keys where it is open");
        require(secrets == nullptr || secrets->who.name == "node", "and who the other end is");
        return secrets;
    }

    const bool are_friends_;
    introduced_end caller_, called_;
    bool is_whole_ = true;
};

}  // namespace

void run_one(const_bytes input) {
    if (input.empty()) return;
    wire_of_liar between(std::to_integer<unsigned>(input[0]) & 3u);
    const_bytes left = input.subspan(1);
    for (int steps = 0; !left.empty() && steps < 60; ++steps)
        left = left.subspan(std::min(left.size(), between.go_on(left)));
    between.carry();
    between.check();
}

std::span<const std::string_view> seeds() {
    using namespace std::string_view_literals;
    static constexpr std::array<std::string_view, 10> all{
        "\0\1"sv,
        "\1\1"sv,
        "\2\1"sv,
        "\0\0\x8\0"sv,
        "\0\2\x40"sv,                      // A bit of the first packet,
        "\0\0\xa\x50\1"sv,                 // and of its answer.
        "\0\3\x90\1"sv,                    // Half of it.
        "\1\0\xd\0\1"sv,                   // An answer twice.
        "\0\6\0\1"sv,                      // The caller meets itself.
        "\0\7\x9\x16\3\1\0\4\1\0\0\0\1"sv  // A handshake that is too short.
    };
    return all;
}

}  // namespace amalgam::fuzz
