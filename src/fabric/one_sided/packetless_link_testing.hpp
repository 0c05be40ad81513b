#pragma once

#include <amalgam/fabric/packets.hpp>

namespace amalgam::detail {

/// For tests: a carrier's link that takes no packets.
struct packetless_link final : packet_link {
    posted send(packet&) noexcept override { return posted::full; }
    void close() noexcept override {}
};

}  // namespace amalgam::detail
