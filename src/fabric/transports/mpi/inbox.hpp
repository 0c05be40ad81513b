#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/core/bytes.hpp>

#include "fabric/transports/mpi/library.hpp"
#include "fabric/transports/mpi/wire.hpp"

namespace amalgam::detail {

/// Incoming messages of one port, in order from each rank.
///
/// Short messages go into a ring of receives posted in advance. These accept any sender, so a long
/// message, whose sender may freeze or die halfway, must never land there: it would block all other
/// senders. A long message is therefore announced by a short one and received from that rank alone.
///
/// Threads: one at a time.
class mpi_inbox {
public:
    /// Failure: throws std::bad_alloc.
    mpi_inbox(mpi_library& mpi, std::uint16_t number);
    ~mpi_inbox();
    mpi_inbox(const mpi_inbox&) = delete;

    std::uint16_t number() const noexcept { return number_; }
    /// Whether messages are being received.
    bool is_busy() const noexcept { return !under_way_.empty(); }

    /// Delivers at most `budget` messages by on_message(rank, bytes), and returns how many. The
    /// bytes are valid only during the call.
    template <typename Receiver>
    std::size_t take(std::size_t budget, Receiver&& on_message) {
        std::size_t count = finish_under_way(budget, on_message);
        while (count < budget && has_room()) {
            int from = 0;
            const_bytes bytes;
            if (!test_ring(from, bytes)) break;
            if (mpi_word::announces(bytes)) {
                begin_long(from, mpi_word::from_of(bytes));
            } else if (waits_behind_another(from, under_way_.size())) {
                keep_short(from, bytes);
            } else {
                ++count;
                on_message(from, bytes);
            }
            turn_ring();
        }
        return count;
    }
    /// That rank is gone: messages in flight from it will never arrive.
    void forget(int rank) noexcept;

private:
    static constexpr std::size_t max_under_way = 64;
    static constexpr std::size_t ring_slots = 16;

    /// A long message, or a short one queued behind it.
    struct arrival {
        MPI_Request request = MPI_REQUEST_NULL;
        int from = 0;
        bool is_here = false;
        std::size_t count = 0;
        std::unique_ptr<std::byte[]> bytes;
    };
    struct slot {
        MPI_Request request = MPI_REQUEST_NULL;
        std::unique_ptr<std::byte[]> bytes;
    };

    template <typename Receiver>
    std::size_t finish_under_way(std::size_t budget, Receiver&& on_message) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < under_way_.size() && count < budget;) {
            if (waits_behind_another(under_way_[i].from, i) || !has_come(under_way_[i])) {
                ++i;
                continue;
            }
            arrival one = std::move(under_way_[i]);
            under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
            ++count;
            on_message(one.from, const_bytes(one.bytes.get(), one.count));
            free_.push_back(std::move(one.bytes));
        }
        return count;
    }
    bool has_room() noexcept;
    bool test_ring(int& from, const_bytes& bytes) noexcept;
    void turn_ring() noexcept;
    void post(slot& one) noexcept;
    void begin_long(int from, std::uint64_t count) noexcept;
    void keep_short(int from, const_bytes bytes) noexcept;
    bool has_come(arrival& one) noexcept;
    bool waits_behind_another(int from, std::size_t at) const noexcept;
    void abandon(arrival& one) noexcept;

    mpi_library& mpi_;
    std::uint16_t number_;
    std::array<slot, ring_slots> ring_;
    std::size_t head_ = 0;
    std::vector<arrival> under_way_;
    std::vector<std::unique_ptr<std::byte[]>> free_;  ///< Capacity for all buffers.
    std::size_t made_ = 0;
};

}  // namespace amalgam::detail
