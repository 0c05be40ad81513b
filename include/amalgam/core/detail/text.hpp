#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace amalgam::detail {

/// Without the blanks, tabs and carriage returns at its ends.
std::string_view trimmed(std::string_view text) noexcept;

/// What a hexadecimal digit stands for; -1 for what is none.
int hex_digit(char c) noexcept;
/// Two hexadecimal digits for each byte, small letters.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace amalgam::detail
