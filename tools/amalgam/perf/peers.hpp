#pragma once

#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>

#include "perf/measurement.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {

/// Runs `test` in a child process, so that nothing a library leaves behind (threads, pinned
/// processors) affects the next one.
/// Failure: throws error{handler_failed} with the error text from there.
measurement run_apart(const perf_test& test, const request& asked);

/// Runs the counterpart of `test` over `over` ("shm", "tcp") on a bare library, by the program
/// amalgam-peer-LIBRARY: next to this one, or in PATH.
///
/// Failure: `not_found` without the program, `unsupported` if the library cannot do it, and
///          handler_failed; each with a sentence.
result<measurement> run_peer(std::string_view library, std::string_view test, std::string_view over,
                             const request& asked);

/// Medium of a URI between two processes of one host, "shm" or "tcp"; empty if no peer has the
/// same.
std::string_view medium_of(const std::string& uri);

}  // namespace amalgam::perf
