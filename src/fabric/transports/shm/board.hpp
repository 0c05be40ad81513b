#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

#include "fabric/transports/shm/layout.hpp"
#include "fabric/transports/shm/mapping.hpp"

namespace amalgam::detail {

/// The memory that a port shows to all its peers: whether it sleeps, and its regions.
///
/// Threads: the port's; peers read at any time.
class shm_board {
public:
    /// Failure: `no_memory`.
    static result<shm_board> make();

    /// To pass to peers; they can map it for reading only.
    int fd() const noexcept { return fd_.get(); }

    /// From here on a sender that publishes a record will ring. Cost: a full barrier.
    void sleep() noexcept { state().sleeping.fetch_add(1, std::memory_order_seq_cst); }
    void wake() noexcept { state().sleeping.fetch_add(1, std::memory_order_seq_cst); }

    /// Shows a region, if it has few enough segments and a slot; else it stays unknown here.
    void publish(const remote_key& key, scatter segments) noexcept;
    /// Peers that look from now on do not find it. True: it was shown, so some peer may have
    /// looked before and be copying still.
    bool withdraw(const remote_key& key) noexcept;

private:
    shm_board(unique_fd fd, shm_mapping memory) noexcept
        : fd_(std::move(fd)), memory_(std::move(memory)) {}

    shm_board_layout& state() const noexcept {
        return *reinterpret_cast<shm_board_layout*>(memory_.data());
    }
    shm_region_slot* slot_of(const remote_key& key) const noexcept;

    unique_fd fd_;
    shm_mapping memory_;
};

/// A region as one of its peers found it. The addresses are the owner's.
struct shm_found_region {
    enum class kind : std::uint8_t {
        unknown,  ///< Not shown: only the owner can tell.
        refused,  ///< The key does not open it.
        open
    };
    kind what = kind::unknown;
    std::size_t segment_count = 0;
    const_bytes segments[shm_region_slot::max_segments];
};

/// Somebody else's board.
///
/// Threads: the port's. Trusts nothing that stands there: wrong addresses are the kernel's to
/// refuse, in a process that gave them itself.
class shm_board_view {
public:
    shm_board_view() noexcept = default;
    explicit shm_board_view(shm_mapping memory) noexcept : memory_(std::move(memory)) {}

    /// Odd while its owner sleeps; another odd number each time.
    const shm_word& sleeping() const noexcept { return state().sleeping; }

    /// What `key` opens for `asked` on [offset, offset + bytes).
    shm_found_region find(const remote_key& key, std::uint64_t offset, std::uint64_t bytes,
                          access asked) const noexcept;

private:
    const shm_board_layout& state() const noexcept {
        return *reinterpret_cast<const shm_board_layout*>(memory_.data());
    }
    shm_mapping memory_;
};

}  // namespace amalgam::detail
