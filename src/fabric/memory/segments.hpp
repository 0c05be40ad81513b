#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <amalgam/core/bytes.hpp>

namespace amalgam::detail {

/// Total length of a list of segments.
template <typename Bytes>
std::size_t total_bytes(std::span<const Bytes> segments) noexcept {
    if (segments.size() == 1) return segments.front().size();
    std::size_t total = 0;
    for (const Bytes& one : segments)
        total += one.size();
    return total;
}

/// A position in a list of segments.
struct segment_cursor {
    std::size_t index = 0;   ///< Segment number.
    std::size_t within = 0;  ///< Bytes into that segment.
};

/// Calls `use(piece)` for the next `bytes` bytes from `at`, in order, and advances `at`.
/// Precondition: the list has that many bytes from `at`.
template <typename Bytes, typename Use>
void walk(std::span<const Bytes> segments, segment_cursor& at, std::size_t bytes, Use&& use) {
    while (bytes > 0) {
        const Bytes& here = segments[at.index];
        const std::size_t some = std::min(bytes, here.size() - at.within);
        if (some > 0) use(here.subspan(at.within, some));
        at.within += some;
        bytes -= some;
        if (at.within == here.size()) at = {at.index + 1, 0};
    }
}

/// Appends the next `bytes` bytes from `at` to `out`, piece by piece.
/// Failure: throws std::bad_alloc; `at` is then unspecified.
template <typename Bytes, typename Out>
void slice(std::span<const Bytes> segments, segment_cursor& at, std::size_t bytes,
           std::vector<Out>& out) {
    walk(segments, at, bytes, [&](Bytes piece) { out.push_back(piece); });
}

/// Copies `from` to position `at` and advances `at`.
inline void copy_in(std::span<const mutable_bytes> to, segment_cursor& at,
                    const_bytes from) noexcept {
    walk(to, at, from.size(), [&](mutable_bytes piece) {
        std::memcpy(piece.data(), from.data(), piece.size());
        from = from.subspan(piece.size());
    });
}

/// Copies the next `bytes` bytes from one list to another and advances both positions.
/// Precondition: both have that many bytes left.
inline void copy_across(std::span<const mutable_bytes> to, segment_cursor& to_at,
                        std::span<const const_bytes> from, segment_cursor& from_at,
                        std::size_t bytes) noexcept {
    walk(from, from_at, bytes, [&](const_bytes piece) { copy_in(to, to_at, piece); });
}

/// Copies all segments to `to`, one after the other.
inline void copy_out(std::span<const const_bytes> from, std::byte* to) noexcept {
    for (const const_bytes& piece : from) {
        if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
    }
}

}  // namespace amalgam::detail
