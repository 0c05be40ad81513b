#pragma once

#include <cstdint>

namespace amalgam {

/// System-wide id of a resource. Positive as an int, as RoCL's own interface requires.
///
/// Each host's directory allocates ids from ranges of 65,536 that it owns. A freed id is reused as
/// late as possible: after all others of that directory.
enum class resource_id : std::uint32_t {
    none = 0  ///< No resource.
};

}  // namespace amalgam
