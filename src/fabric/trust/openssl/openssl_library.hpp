#pragma once

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// Loads OpenSSL, unless it is there. Asked before its first use, which ends the process otherwise.
/// Failure: `unsupported`, with one sentence. Cost: a millisecond, the first time.
result<void> find_openssl() noexcept;

}  // namespace amalgam::detail
