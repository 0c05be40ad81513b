#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam {

/// Bytes to send, in pieces: both the array and the bytes are lent until completion.
using gather = std::span<const const_bytes>;
/// Where bytes go, in pieces: lent likewise.
using scatter = std::span<const mutable_bytes>;

/// A peer as one port knows it: never reused, so a stale id is refused, not misdelivered.
struct peer_id {
    std::uint64_t value = 0;  ///< 0 names nobody.
    explicit constexpr operator bool() const noexcept { return value != 0; }
    friend constexpr auto operator<=>(peer_id, peer_id) = default;
};

/// An unexpected message, shown to the sink while it runs.
class message {
public:
    message(peer_id from, std::uint64_t tag, const_bytes bytes, buffer* owned,
            buffer_pool& pool) noexcept
        : from_(from), tag_(tag), bytes_(bytes), owned_(owned), pool_(pool) {}

    peer_id from() const noexcept { return from_; }
    std::uint64_t tag() const noexcept { return tag_; }
    /// Valid until the sink returns.
    const_bytes bytes() const noexcept { return bytes_; }

    /// Keeps the bytes past the sink's return. Cost: free when the port assembled the
    /// message in a buffer of its own (large ones), else one copy into a pooled buffer.
    buffer take();

private:
    peer_id from_;
    std::uint64_t tag_;
    const_bytes bytes_;
    buffer* owned_;
    buffer_pool& pool_;
};

/// Who gets what arrives unasked at a port. Called inside progress(); may post.
class message_sink {
public:
    /// One sender's messages arrive in the order it posted them.
    virtual void on_message(message& arrived) noexcept = 0;

    /// The peer is gone (`disconnected`) or was never reached (`unreachable`), or was closed
    /// here (`closed`). Runs once per peer, after its last message and after everything that was
    /// posted to it before has completed, also what was posted when it was lost already: a
    /// completion that always posts to it again puts this off. What is posted later fails alike.
    virtual void on_peer_down(peer_id, status) noexcept {}

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
