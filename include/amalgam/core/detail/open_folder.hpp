#pragma once

#include <optional>
#include <string>

namespace amalgam::detail {

/// A folder in which everybody on this host may put another file or folder in the place of one.
/// One like /tmp (with the sticky bit) is none: nobody replaces what is of others there.
struct open_folder {
    std::string path{};  ///< With "/" behind it.
    unsigned mode = 0;
};

/// The first such folder above `path`, or above what its links lead to: whoever may write there
/// decides what the path means. Links within what a link leads to are followed, not looked at.
/// Empty: there is none, or none that can be seen.
///
/// Cost: a system call for each folder on both ways.
std::optional<open_folder> open_folder_above(const std::string& path);

}  // namespace amalgam::detail
