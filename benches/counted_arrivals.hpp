#pragma once

#include <cstddef>

#include <amalgam/fabric/transport.hpp>

namespace amalgam::bench {

/// Counts what came, and knows from whom.
struct arrivals final : message_sink {
    void on_message(message& got) noexcept override {
        ++count;
        from = got.from();
    }
    void on_peer_down(peer_id, status) noexcept override {}
    std::size_t count = 0;
    peer_id from;
};

/// Of a short message, which the port has copied when the post returns.
struct copied_send final : completion {
    copied_send() noexcept : completion([](completion&, status, std::size_t) noexcept {}) {}
};

}  // namespace amalgam::bench
