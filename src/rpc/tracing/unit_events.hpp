#pragma once

namespace amalgam::detail {

/// From the first call on, records what ULTs and tasklets do. The hook lives as long as the
/// process. Without room for one more task_hook, says so in the log, and records the rest.
void record_units() noexcept;

}  // namespace amalgam::detail
