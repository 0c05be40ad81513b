#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/fabric/packets.hpp>

namespace amalgam::detail {

/// Packets to fill and send, all of one length, used again in the order that keeps them in cache.
///
/// Owner:   owns all packets, also those lent to a carrier.
/// Threads: the port's.
class packet_pool {
public:
    explicit packet_pool(std::size_t packet_bytes) : packet_bytes_(packet_bytes) {}

    /// nullptr: there is no memory.
    packet* take() noexcept {
        if (free_ == nullptr && !grow()) return nullptr;
        packet* one = free_;
        free_ = one->next;
        one->next = nullptr;
        one->bytes = 0;
        return one;
    }
    void give_back(packet& one) noexcept {
        one.next = free_;
        free_ = &one;
    }
    /// A packet that was taken is never freed, also when the pool ends.
    void abandon(packet& one) noexcept;
    std::size_t packet_bytes() const noexcept { return packet_bytes_; }

private:
    struct block {
        packet head;
        std::unique_ptr<std::byte[]> memory;
    };
    bool grow() noexcept;

    std::size_t packet_bytes_;
    packet* free_ = nullptr;
    std::vector<std::unique_ptr<block>> all_;
};

}  // namespace amalgam::detail
