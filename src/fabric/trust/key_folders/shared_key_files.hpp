#pragma once

#include <string>

#include <amalgam/fabric/key_folder.hpp>

namespace amalgam::detail {

// What key_folder.hpp does with folders of pre-shared keys. Their file is written and read in
// secure memory only. All throw amalgam::error.

bool has_shared_keys(const std::string& folder);
/// Failure: throws error{in_use} if the folder, with "/" behind it, has pre-shared keys.
void refuse_beside_shared_keys(const std::string& in);

/// See make_key(). Precondition: the name was checked.
void make_shared_key(const std::string& folder, const key_request& what);
/// The own key of the other file or folder is added to those that `in` accepts. Returns one line.
std::string accept_shared_key(const std::string& in, const std::string& file_or_folder);
/// Removes the key of that name, or the own one of that file or folder. Returns one line.
std::string remove_shared_key(const std::string& in, const std::string& name_or_folder);

}  // namespace amalgam::detail
