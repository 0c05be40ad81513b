#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace amalgam {

/// Where a call belongs in a distributed trace: the W3C's trace context, version 00.
///
/// It travels with a call that has one, and the calls that its handler makes carry it on, each as
/// a span of its own; so one trace shows all that a request brought about, over any number of
/// processes. Calls without one pay nothing.
/// Owner:   a plain value.
struct trace_context {
    std::array<std::byte, 16> trace_id{};  ///< The same in all of a trace; not all zero.
    std::array<std::byte, 8> span_id{};    ///< This call's; not all zero.
    bool sampled = true;                   ///< Somebody up the line records it.

    /// A new trace, with random ids.
    static trace_context start() noexcept;
    /// Another span of the same trace.
    trace_context child() const noexcept;
    /// As in the header of that name: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".
    std::string traceparent() const;
    /// The other way. Nothing when the text is none, or its ids are all zero.
    static std::optional<trace_context> parse(std::string_view traceparent) noexcept;

    friend bool operator==(const trace_context&, const trace_context&) = default;
};

}  // namespace amalgam
