#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>

#include "fabric/frames/chain.hpp"
#include "fabric/frames/frame.hpp"
#include "fabric/memory/segments.hpp"

namespace amalgam::detail {

/// A frame that a link accepted but has not completely sent.
struct shm_lent {
    frame_header header;
    gather payload;                 ///< The sender's, or `kept` once detached.
    segment_cursor at;              ///< Position reached.
    std::size_t left = 0;           ///< Unsent bytes.
    completion* on_sent = nullptr;  ///< Null once detached.
    buffer own;                     ///< The bytes, once detached.
    const_bytes kept;

    /// Whether its header is in the ring, but not all of it.
    bool has_begun() const noexcept { return left < header.bytes; }

    shm_lent* next = nullptr;
    shm_lent* previous = nullptr;
};

/// A pool of records of borrowed frames.
///
/// Owner:   owns all records; take() and give_back() do not allocate in steady state.
/// Threads: the port's thread.
class shm_lent_pool {
public:
    /// nullptr: out of memory.
    shm_lent* take() noexcept try {
        if (free_.empty()) {
            for (std::size_t i = 0; i < 16; ++i)
                all_.push_back(std::make_unique<shm_lent>());
            for (std::size_t i = all_.size() - 16; i < all_.size(); ++i)
                free_.append(*all_[i]);
        }
        ++taken_;
        return free_.take_first();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    void give_back(shm_lent& one) noexcept {
        one = shm_lent{};
        free_.append(one);
        --taken_;
    }
    /// Number of records in use.
    std::size_t taken() const noexcept { return taken_; }

private:
    std::vector<std::unique_ptr<shm_lent>> all_;
    chain<shm_lent> free_;
    std::size_t taken_ = 0;
};

}  // namespace amalgam::detail
