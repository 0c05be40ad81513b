#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/trace_context.hpp>

namespace amalgam::detail {

/// What a server tells of a call, in nanoseconds; on the wire as they stand here.
struct call_times {
    static constexpr std::size_t wire_bytes = 16;
    std::uint64_t waited = 0;   ///< From its arrival to its handler.
    std::uint64_t handled = 0;  ///< In its handler.

    void write(std::byte* to) const noexcept;
    /// Empty unless `wire` has them.
    static std::optional<call_times> read(const_bytes wire) noexcept;
};

/// From which on a call is slow, in nanoseconds: AMALGAM_SLOW_CALLS, read once. 0: none is.
std::uint64_t slow_call_limit() noexcept;
/// "250us", "100ms", "2s", in nanoseconds. Empty unless it is such a text, and above zero.
std::optional<std::uint64_t> parse_slow_calls(std::string_view text) noexcept;

/// A call that has ended. Times in nanoseconds.
struct slow_call {
    std::string_view procedure;
    std::string_view peer;
    status how;
    std::uint64_t queued = 0;  ///< Until it left this process.
    std::uint64_t whole = 0;
    std::optional<call_times> there;  ///< As the server tells.
    trace_context trace;
};
/// One line that names where the time went.
void log_slow_call(const slow_call& what) noexcept;

}  // namespace amalgam::detail
