#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <ranges>
#include <span>
#include <type_traits>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/message.hpp>

namespace amalgam {

namespace detail {
template <typename T>
inline constexpr bool is_bytes_span = false;
template <>
inline constexpr bool is_bytes_span<const_bytes> = true;
template <>
inline constexpr bool is_bytes_span<mutable_bytes> = true;

/// A contiguous range of trivially copyable values that outlives the call it is passed to.
template <typename Range>
concept one_segment = contiguous_trivial<std::remove_reference_t<Range>> &&
    (std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>)&&!is_bytes_span<
        std::remove_cv_t<std::ranges::range_value_t<Range>>>;

template <typename Range>
concept one_mutable_segment = one_segment<Range> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;

/// Total bytes of all segments. Saturates, as when one segment is listed over and over, at the
/// largest value, which exceeds any memory.
template <typename Segment>
constexpr std::uint64_t bytes_of_all(std::span<const Segment> list) noexcept {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t sum = 0;
    for (const Segment& each : list)
        sum = each.size() > most - sum ? most : sum + each.size();
    return sum;
}
}  // namespace detail

/// Local memory to write to: one contiguous range (vector, array, string, span of trivially
/// copyable values), or a list of segments that form one logical range, in order.
///
/// Owner:   borrows the bytes and the list. A parameter type: do not store it.
class segments {
public:
    template <detail::one_mutable_segment Range>
    segments(Range&& range) noexcept : one_(as_writable_bytes_of(range)) {}
    segments(scatter list) noexcept : many_(list), is_list_(true) {}
    segments(const std::vector<mutable_bytes>& list) noexcept : segments(scatter(list)) {}

    scatter list() const noexcept { return is_list_ ? many_ : scatter(&one_, 1); }
    std::uint64_t bytes() const noexcept { return detail::bytes_of_all(list()); }

private:
    mutable_bytes one_;
    scatter many_;
    bool is_list_ = false;
};

/// Local memory to read from; like segments.
class const_segments {
public:
    template <detail::one_segment Range>
    const_segments(Range&& range) noexcept : one_(as_bytes_of(range)) {}
    const_segments(gather list) noexcept : many_(list), is_list_(true) {}
    const_segments(const std::vector<const_bytes>& list) noexcept : const_segments(gather(list)) {}
    /// Cost: copies the list.
    const_segments(scatter list) : copy_(list.begin(), list.end()), many_(copy_), is_list_(true) {}
    const_segments(const std::vector<mutable_bytes>& list) : const_segments(scatter(list)) {}
    const_segments(const const_segments&) = delete;
    const_segments& operator=(const const_segments&) = delete;

    gather list() const noexcept { return is_list_ ? many_ : gather(&one_, 1); }
    std::uint64_t bytes() const noexcept { return detail::bytes_of_all(list()); }

private:
    const_bytes one_;
    std::vector<const_bytes> copy_;
    gather many_;
    bool is_list_ = false;
};

}  // namespace amalgam
