#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/fabric/completion.hpp>
#include <amalgam/fabric/message.hpp>

namespace amalgam::detail {

/// The link from an engine to itself: no wire, but the same bytes and order, and delivered only
/// from the stream's loop, like a port.
///
/// Threads: the engine's stream.
class self_link {
public:
    /// The engine's own id on this link.
    static constexpr peer_id id{1};

    explicit self_link(buffer_pool& buffers) noexcept : buffers_(buffers) {}

    /// Copies. Never `pending`.
    posted post(std::uint64_t tag, gather pieces) noexcept;
    /// Passes messages that had arrived before to the sink; returns their number.
    std::size_t deliver(message_sink& to) noexcept;
    bool empty() const noexcept { return waiting_count_ == 0; }
    /// How many messages wait.
    std::size_t waiting() const noexcept { return waiting_count_; }
    void clear() noexcept {
        waiting_.clear();
        waiting_count_ = 0;
    }

private:
    struct parcel {
        std::uint64_t tag;
        buffer bytes;
    };

    buffer_pool& buffers_;
    std::vector<parcel> waiting_;
    std::size_t waiting_count_ = 0;  // Its size, which is asked for in each turn.
    std::vector<parcel> delivering_;
};

}  // namespace amalgam::detail
