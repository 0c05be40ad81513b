#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

/// The port that calls `address` and does not listen: tcp:// for tcp://node7:7000.
/// Failure: throws error{invalid} for a malformed address.
std::string calling_port(const std::string& address);

/// Whether asking again may help: the process may only not have started yet.
bool may_come(errc code) noexcept;

/// Looks for who is at `address` and calls `ask(who, patience)`, again and again until that
/// succeeds. Returns who it was; or the last failure, when `may_come()` denies it, when `deadline`
/// has come, or once `is_over()`.
///
/// Threads: any; parks the caller.
result<peer> reach(
    engine& over, const std::string& address, clock::time_point deadline,
    const std::function<result<void>(const peer& who, std::chrono::nanoseconds patience)>& ask,
    const std::function<bool()>& is_over);

}  // namespace amalgam::detail
