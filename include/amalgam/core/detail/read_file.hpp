#pragma once

#include <cstddef>
#include <optional>
#include <span>
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

/// Reads an open file until it ends or the room is full, and returns how many bytes: fewer than
/// there is room for mean its end. A secret is then nowhere but in that memory, which the caller
/// locks and wipes.
///
/// Failure: empty; errno says why it cannot be read.
std::optional<std::size_t> read_into(int file, std::span<std::byte> room) noexcept;

}  // namespace amalgam::detail
