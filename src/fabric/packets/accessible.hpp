#pragma once

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

namespace amalgam::detail {

/// Checks that memory about to be exposed to peers permits their access: touches the first and last
/// page of each segment, which are then present. Memory lost later, for example because its mapped
/// file is truncated, goes unnoticed.
///
/// Failure: `invalid` with a sentence.
/// Cost:    two system calls per segment, and the faults of these pages. Does nothing before Linux
///          5.14.
result<void> check_accessible(scatter segments, access rights) noexcept;

}  // namespace amalgam::detail
