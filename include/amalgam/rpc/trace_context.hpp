#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace amalgam {

/// Position of a call in a distributed trace: W3C Trace Context, version 00.
///
/// It travels with a call that has one. Calls made by the handler continue it, each as a span of
/// its own, so one trace covers everything a request caused, over any number of processes. Calls
/// without one pay nothing.
/// Owner:   a plain value.
struct trace_context {
    std::array<std::byte, 16> trace_id{};  ///< The same throughout a trace; not all zero.
    std::array<std::byte, 8> span_id{};    ///< This call's; not all zero.
    bool sampled = true;                   ///< An upstream caller records it.

    /// A new trace, with random ids.
    static trace_context start() noexcept;
    /// Another span of the same trace.
    trace_context child() const noexcept;
    /// As in the `traceparent` header: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
    std::string traceparent() const;
    /// Parses that header. Empty if malformed or an id is all zero.
    static std::optional<trace_context> parse(std::string_view traceparent) noexcept;

    friend bool operator==(const trace_context&, const trace_context&) = default;
};

}  // namespace amalgam
