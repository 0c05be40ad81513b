#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// Converts a shared object, compiled and linked as image_compiler says, into an image.
/// Failure: `invalid` for a malformed object, `unsupported` for code that cannot travel, with a
///          sentence that names the cause and the remedy.
result<std::vector<std::byte>> image_from_elf(const_bytes object, std::string_view name,
                                              std::size_t payload_alignment);

}  // namespace amalgam::detail
