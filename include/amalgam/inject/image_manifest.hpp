#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>

namespace amalgam {

/// What a signer says of an image, inside the signature: when, where and before what it may run. By
/// default always, everywhere, before nothing.
///
/// Targets judge times by their own clock (injection_options::time_of_day).
///
/// Threads: a plain value.
struct image_manifest {
    /// Of all images of this name. Once a target has accepted one, it refuses lower ones: see
    /// injection_options::versions.
    std::uint64_t version = 0;
    std::chrono::sys_seconds not_before{};                ///< From 1970 to 2199, as the next.
    std::optional<std::chrono::sys_seconds> not_after{};  ///< The last second. Empty: no end.
    /// Targets that it is for: those whose credentials have one of these names or groups (see
    /// identity). Both empty: all targets. At most 64 of each, of at most 255 bytes, without
    /// control characters.
    std::vector<std::string> names{};
    std::vector<std::string> groups{};  ///< As `names`.

    friend bool operator==(const image_manifest&, const image_manifest&) = default;
};

/// For people, in one line: "version 3, until 2027-01-31 12:00:00 UTC, for node7, group compute".
std::string to_text(const image_manifest& what);

}  // namespace amalgam
