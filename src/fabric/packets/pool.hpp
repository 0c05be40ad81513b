#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/fabric/packets.hpp>

namespace amalgam::detail {

/// A pool of outgoing packets of one size. Reuses the last one returned, which is still in cache.
///
/// Owner:   owns all packets, including those lent to a carrier.
/// Threads: the port's thread.
class packet_pool {
public:
    explicit packet_pool(std::size_t packet_bytes) : packet_bytes_(packet_bytes) {}

    /// nullptr: out of memory.
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
    /// A taken packet that is never freed, not even when the pool is destroyed.
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
