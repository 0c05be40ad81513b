#pragma once

#include <string>

namespace amalgam::detail {

/// Starts `amalgam directory` at that address, in a session of its own: this host's as it was
/// started before, else a bare one, which ends by itself when it has had no context for a while.
/// It makes way for one that is started by hand. Two that are started at once: one of them ends at
/// once. The secret comes to it in memory that it inherits.
/// Failure: throws error{unreachable} when there is no such program: the file that AMALGAM_TOOL
///          names, or else amalgam on the PATH; error{denied} when it had a secret before, and this
///          process knows none.
void start_directory(const std::string& address, const std::string& secret);

}  // namespace amalgam::detail
