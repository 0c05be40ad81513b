#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// The image of a shared object that a compiler and linker have made, which image_compiler tells
/// how.
/// Failure: `invalid` for what is no such object, `unsupported` for what cannot travel, with a
///          sentence that says what, and what to do instead.
result<std::vector<std::byte>> image_from_elf(const_bytes object, std::string_view name,
                                              std::size_t payload_alignment);

}  // namespace amalgam::detail
