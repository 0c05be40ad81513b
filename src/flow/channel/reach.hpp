#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

/// Whether retrying may help: the process may not have started yet.
bool may_come(errc code) noexcept;

/// Looks up `address` and calls `ask(who, time_left)`, repeatedly until that succeeds. Returns the
/// peer; or the last failure if `may_come()` is false for it, at `deadline`, or once `is_over()`.
///
/// Threads: any; parks the caller.
result<peer> reach(
    engine& over, const std::string& address, clock::time_point deadline,
    const std::function<result<void>(const peer& who, std::chrono::nanoseconds time_left)>& ask,
    const std::function<bool()>& is_over);

}  // namespace amalgam::detail
