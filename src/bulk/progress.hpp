#pragma once

#include <cstdint>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// Reports a transfer's progress. An exception thrown there is returned, and fails the transfer.
failure try_tell(const std::function<void(std::uint64_t)>& whom, std::uint64_t bytes) noexcept;
/// The same, but throws it as an error.
void tell(const std::function<void(std::uint64_t)>& whom, std::uint64_t bytes);

}  // namespace amalgam::detail
