#pragma once

#include <string>

namespace amalgam::detail {

/// Starts `amalgam directory` at that address, in its own session. This host's directory is
/// restarted as it was started before; otherwise a bare one, which exits when it has had no context
/// for a while, and makes way for one started by hand. If two start at once, one exits at once.
/// Failure: throws error{unreachable} if there is no such program: the file named by AMALGAM_TOOL,
///          or else amalgam on the PATH.
void start_directory(const std::string& address);

}  // namespace amalgam::detail
