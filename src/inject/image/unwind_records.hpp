#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "inject/image/contents.hpp"

namespace amalgam::detail {

/// Why these records (the bytes of `image.unwind`) must not be registered with the unwinder; empty
/// if they may. libgcc trusts them: at the next throw anywhere in the process it reads all
/// registered records, and calls the personality functions they name for the addresses they claim.
std::optional<std::string> fault_of_unwind_records(const image_contents& image,
                                                   std::span<const std::uint8_t> records);

}  // namespace amalgam::detail
