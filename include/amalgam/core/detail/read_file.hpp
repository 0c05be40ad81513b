#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// Longest config that is read.
inline constexpr std::size_t most_config_bytes = std::size_t{16} << 20;

/// Reads a whole file of at most `most` bytes. Reads no further, even from an endless device or a
/// file that is growing.
///
/// Failure: `not_found` if it cannot be read, `invalid` if it is longer. The sentence continues
///          after the file's name: "is longer than 16 MiB".
result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most);

}  // namespace amalgam::detail
