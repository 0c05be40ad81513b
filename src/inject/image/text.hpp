#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>

/// Files of lines, and keys as digits.
namespace amalgam::detail {

/// Takes the next line from the front of `text`, without its comment and outer blanks. False: there
/// is none.
bool take_line(std::string_view& text, std::string_view& line) noexcept;

/// Two hexadecimal digits for each byte. False: it is something else.
bool parse_digits(std::string_view text, std::span<std::uint8_t> into) noexcept;

/// What becomes of a last line without an end: somebody wrote it so, or a crash cut it off.
enum class unended_line { is_ended, is_dropped };

/// Adds whole lines to a file, and makes it if it is not there. One writer at a time. They are on
/// the disk afterwards. False: nothing was added, errno says why.
bool append_lines(const std::string& path, std::string lines, unended_line last);

/// What is wrong with a file that decides what may run: it is none, or everybody may write it or
/// replace it. Nothing about one that is not there.
std::optional<failure> fault_of_policy_file(const std::string& path);

}  // namespace amalgam::detail
