#pragma once

#include <string>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// A path that names the same file after chdir(). Links in it stay; an empty one stays empty.
/// Failure: `not_found` if `path` is relative and the current folder was removed.
result<std::string> absolute_path(const std::string& path);

}  // namespace amalgam::detail
