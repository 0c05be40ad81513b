#pragma once

#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>

#include "perf/measurement.hpp"
#include "perf/tests.hpp"

namespace amalgam::perf {

/// Runs `test` in a process of its own, so that nothing a library leaves behind (threads, pinned
/// processors) reaches the next one.
/// Failure: throws error{handler_failed} with the sentence of what went wrong there.
measurement run_apart(const perf_test& test, const request& asked);

/// What a bare library does instead of `test` over `over` ("shm", "tcp"), by the program
/// amalgam-peer-LIBRARY: beside this one, or in PATH.
///
/// Failure: `not_found` without the program, `unsupported` when the library has no such thing, and
///          handler_failed; each with a sentence.
result<measurement> run_peer(std::string_view library, std::string_view test, std::string_view over,
                             const request& asked);

/// What a URI's bytes travel over between two processes of one host, "shm" or "tcp"; empty when
/// no peer has the same.
std::string_view medium_of(const std::string& uri);

}  // namespace amalgam::perf
