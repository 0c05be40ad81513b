#pragma once

#include <string>
#include <string_view>

namespace amalgam::detail {

/// The address of the directory that the processes of a host and user share.
inline constexpr std::string_view host_directory = "shm://amalgam-directory";

/// Starts `amalgam directory` at that address, in a session of its own. It ends by itself when it
/// has had no context for a while. Two that are started at once: one of them ends at once.
/// Failure: throws error{unreachable} when there is no such program: the file that AMALGAM_TOOL
///          names, or else amalgam on the PATH.
void start_directory(const std::string& address);

}  // namespace amalgam::detail
