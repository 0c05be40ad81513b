#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/shm/memory/mapping.hpp"
#include "fabric/transports/shm/memory/registrations.hpp"

namespace amalgam::detail {

/// A piece of shared memory from which blocks are cut, in whole pages.
///
/// Threads: like a plain value.
class shm_arena {
public:
    /// `bytes` is a whole number of pages.
    /// Failure: `no_memory`; `overloaded` if the process has used half of its descriptors, as the
    ///          rest are reserved for what cannot work without.
    static result<shm_arena> make(std::size_t bytes);

    /// Cuts zeroed memory of that size, in whole pages. Empty if no gap is long enough. Failure:
    /// throws std::bad_alloc.
    std::optional<mutable_bytes> cut(std::size_t bytes);
    /// Returns a cut. Its pages are freed at once, even if a peer has mapped them.
    void give_back(mutable_bytes cut) noexcept;
    /// Makes sure that memory for a cut is available. False: it is not; see errno.
    bool reserve(mutable_bytes cut) const noexcept;
    bool is_whole() const noexcept { return cuts_ == 0; }

    const std::byte* start() const noexcept { return memory_.data(); }
    bool holds(const_bytes range) const noexcept;
    /// Description to publish. The registrations assigns its version.
    const shm_shown_block& shown() const noexcept { return shown_; }

    std::size_t slot = 0;  ///< On the registrations.

private:
    struct gap {
        std::size_t offset;
        std::size_t bytes;
    };

    shm_arena(unique_fd fd, shm_mapping memory, const shm_shown_block& shown);

    unique_fd fd_;
    shm_mapping memory_;
    shm_shown_block shown_;
    std::vector<gap> gaps_;  // In order; no two touch. Capacity for one more than there are cuts.
    std::size_t cuts_ = 0;
};

}  // namespace amalgam::detail
