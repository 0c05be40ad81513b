#pragma once

#include <string>
#include <string_view>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Writes a file that appears whole or not at all, under its name: also after a crash. The folder
/// is locked, see lock_folder(). Failure: throws error{in_use} if there is one and it may not be
/// replaced; error{denied}.
void write_file(const std::string& path, std::string_view content, unsigned mode, bool overwrite);

/// Makes the folder, and those it is in, where they are not there, each with mode 0700.
/// Failure: throws error{denied}.
void make_folder(const std::string& path);

/// Keeps other processes that do the same out of the folder, while the result lives.
/// Failure: throws error{not_found}; error{in_use} after ten seconds.
unique_fd lock_folder(const std::string& path);

bool is_folder(const std::string& path) noexcept;
bool is_there(const std::string& path) noexcept;

}  // namespace amalgam::detail
