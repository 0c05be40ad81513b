#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/timer.hpp>

#include "rpc/call/call_settings.hpp"
#include "rpc/memory/rendezvous.hpp"
#include "rpc/tracing/call_span.hpp"
#include "rpc/tracing/stream_span.hpp"

namespace amalgam::detail {

class result_fetch;

/// What few calls need: a trace, a context, metadata, interceptors, retries, rendezvous.
struct call_extras : in_small_block {
    std::vector<std::byte> wire;  ///< As written by add_extra().
    archive_context context;      ///< Seen by what reads the result; empty: the engine's.

    // For interceptors and statistics.
    clock::time_point began{};
    bool watched = false;  ///< called() is still to run.
    bool counted = false;  ///< It is still to be counted.

    std::optional<call_span> span;  ///< Of a call that is recorded.

    // For streams of values that are received.
    bool streams = false;                 ///< Counted as one that is open.
    std::unique_ptr<stream_span> values;  ///< Read by a handler that is recorded.

    // For retries.
    unsigned attempts_left = 0;
    std::chrono::nanoseconds pause{0};  ///< Before the next attempt; doubles each time.
    std::string address;                ///< To look the peer up again.

    // For arguments or results by rendezvous.
    std::unique_ptr<exposure> arguments;  ///< Exposed until the call has ended.
    result_fetch* result = nullptr;       ///< While the fetch is in flight.
};

/// Runs the interceptors, and returns the extras of a call. Throws what an interceptor
/// throws, after called() of those before it.
std::vector<std::byte> dress_call(const call_settings& settings, const call_target& target,
                                  bool one_way, clock::time_point deadline,
                                  const call_context* serving);
/// Tells the server which handler calls, if calls are counted. After all other extras, as it takes
/// no room that they need.
void tell_parent(std::vector<std::byte>& extras, const call_settings& settings,
                 const remote_procedure& what, const call_context* serving);
/// The span of a call with these extras, if it is recorded or may be logged as slow.
std::optional<call_span> span_of(const call_settings& settings, const_bytes extras,
                                 const call_context* serving, std::size_t bytes) noexcept;
void add_loans(std::vector<std::byte>& extras, const lent_list& what);
/// Runs called() of the engine's interceptors in reverse order, leaving out the first `skipped`.
void tell_called(const call_settings& settings, const remote_procedure& what, const peer& to,
                 status how, clock::duration took, std::size_t skipped = 0) noexcept;

}  // namespace amalgam::detail
