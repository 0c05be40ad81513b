#pragma once

#include <cstdint>

namespace amalgam {

/// Which resource, in the whole system. Positive as an int, which is what RoCL's own interface has.
///
/// The directory of a host hands ids out of ranges of 65,536 that it owns. One that was freed comes
/// again as late as possible: after all others of that directory.
enum class resource_id : std::uint32_t { none = 0 };

}  // namespace amalgam
