#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

/// Pieces to send. Array and bytes are borrowed until completion.
using gather = std::span<const const_bytes>;
/// Pieces to receive into; borrowed likewise.
using scatter = std::span<const mutable_bytes>;

/// A peer as known to one port. Ids are never reused, so a stale one is refused, not misdelivered.
struct peer_id {
    std::uint64_t value = 0;  ///< 0 means no peer.
    explicit constexpr operator bool() const noexcept { return value != 0; }
    friend constexpr auto operator<=>(peer_id, peer_id) = default;
};

/// An unexpected message, valid only while the sink runs.
class message {
public:
    message(peer_id from, std::uint64_t tag, const_bytes bytes, buffer* owned,
            buffer_pool& pool) noexcept
        : from_(from), tag_(tag), bytes_(bytes), owned_(owned), pool_(pool) {}

    peer_id from() const noexcept { return from_; }
    std::uint64_t tag() const noexcept { return tag_; }
    /// Valid until the sink returns.
    const_bytes bytes() const noexcept { return bytes_; }

    /// Keeps the bytes after the sink returns. Cost: free if the port received the message into its
    /// own buffer (large messages), else one copy into a pooled buffer.
    buffer take();

private:
    peer_id from_;
    std::uint64_t tag_;
    const_bytes bytes_;
    buffer* owned_;
    buffer_pool& pool_;
};

/// A notified put that is whole: all its bytes are in the region. See port::post_put_notify().
struct put_notice {
    peer_id from;              ///< The peer that wrote.
    std::uint64_t region = 0;  ///< Where: remote_key::region of a region that was open then.
    std::uint64_t offset = 0;  ///< Of the first byte written, in the region.
    std::uint64_t bytes = 0;   ///< How many were written; may be 0.
    std::uint64_t value = 0;   ///< What the peer passed as `notice`.
};

/// Receives unexpected messages, notices of puts and of lost peers. Called inside progress(); may
/// post.
class message_sink {
public:
    /// Messages from one peer arrive in the order it posted them.
    virtual void on_message(message& arrived) noexcept = 0;

    /// The peer is gone (`disconnected`), was never reached (`unreachable`), or was closed here
    /// (`closed`). Runs once per peer, after its last message and after every operation posted to
    /// it earlier has completed. That includes operations posted after the loss, so a completion
    /// that keeps posting to the peer delays this call. Later posts fail with the same status.
    virtual void on_peer_down(peer_id, status) noexcept {}

    /// A peer's notified put is whole. Runs once per such put that succeeds, in the order in which
    /// the peer posted them, after all bytes of the puts that it posted before are visible here.
    /// Nothing is told of a put that failed or was canceled before all of it had left. Where a peer
    /// mixes them with messages, the two may overtake each other.
    // Last: plug-ins built for version 2 of their interface know only the functions above.
    virtual void on_put(const put_notice&) noexcept {}

protected:
    ~message_sink() = default;
};

}  // namespace amalgam

template <>
struct std::hash<amalgam::peer_id> {
    std::size_t operator()(amalgam::peer_id peer) const noexcept {
        return static_cast<std::size_t>(peer.value * 0x9E3779B97F4A7C15ull);
    }
};
