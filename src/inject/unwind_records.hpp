#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "inject/image_contents.hpp"

namespace amalgam::detail {

/// Why these records (the bytes of `image.unwind`) cannot be handed to who unwinds; nothing: they
/// can. libgcc trusts them: it reads all records that it was told of at the next throw anywhere in
/// the process, and calls what they name as a personality for the addresses that they claim.
std::optional<std::string> fault_of_unwind_records(const image_contents& image,
                                                   std::span<const std::uint8_t> records);

}  // namespace amalgam::detail
