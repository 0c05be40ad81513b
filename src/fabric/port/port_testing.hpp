#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/fabric/port.hpp>

/// Helpers for this layer's unit tests of ports.
namespace amalgam::testing_support {

/// A completion that records how it ended.
struct recorded : completion {
    recorded() : completion(&ran) {}

    int runs = 0;
    status what;
    std::size_t bytes = 0;
    std::function<void()> then;

    bool ended_with(errc code) const { return runs == 1 && what.code == code; }

private:
    static void ran(completion& self, status how, std::size_t size) noexcept {
        auto& here = static_cast<recorded&>(self);
        ++here.runs;
        here.what = how;
        here.bytes = size;
        if (here.then) here.then();
    }
};

/// A sink that records what arrived.
struct recorded_messages final : message_sink {
    struct one {
        peer_id from;
        std::uint64_t tag;
        std::string text;
        friend bool operator==(const one&, const one&) = default;
    };
    std::vector<one> all;
    std::vector<std::pair<peer_id, status>> down;
    std::function<void(message&)> on_each;

    void on_message(message& arrived) noexcept override {
        const const_bytes bytes = arrived.bytes();
        all.push_back({arrived.from(), arrived.tag(),
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
        if (on_each) on_each(arrived);
    }
    void on_peer_down(peer_id peer, status why) noexcept override { down.emplace_back(peer, why); }
};

inline const_bytes bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

inline posted send(port& from, peer_id to, std::uint64_t tag, std::string_view text,
                   completion& op) {
    const const_bytes piece = bytes_of(text);
    return from.post_send(to, tag, {&piece, 1}, op);
}

/// Bytes that differ by position and by seed.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed = 1) {
    std::vector<std::byte> all(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        all[i] = static_cast<std::byte>((seed * 131 + i * 7 + (i >> 8) * 13) & 0xff);
    return all;
}

}  // namespace amalgam::testing_support
