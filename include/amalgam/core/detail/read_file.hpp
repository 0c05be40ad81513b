#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// The longest config that is read.
inline constexpr std::size_t most_config_bytes = std::size_t{16} << 20;

/// All of a file that has at most `most` bytes: of a device without an end, or a file that somebody
/// else makes grow, no more is read.
///
/// Failure: `not_found` when it cannot be read, `invalid` when it is longer. The sentence goes on
///          from the file's name: "is longer than 16 MiB".
result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most);

}  // namespace amalgam::detail
