#pragma once

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

namespace amalgam::detail {

/// Whether memory that is about to be shown to peers can be accessed as they may: looks at the
/// first and the last page of each segment, which are there afterwards. Memory that is taken away
/// later, as by truncating the file that it maps, is not noticed.
///
/// Failure: `invalid` with a sentence.
/// Cost:    two system calls a segment, and the faults of these pages. Nothing before Linux 5.14.
result<void> check_accessible(scatter segments, access rights) noexcept;

}  // namespace amalgam::detail
