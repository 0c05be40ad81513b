#pragma once

namespace amalgam::detail {

/// For an interface of another library whose units follow each other without a switch: whether the
/// caller, a ULT or tasklet whose function has ended, may run that of another one in its place. The
/// ULT is as new then, nothing that its stream puts first is ready, and the batch is not used up:
/// the other one counts as picked, whether or not there is one. False: end as usual.
///
/// Cost: some twenty instructions.
bool may_run_another() noexcept;

/// For a ULT whose function has ended, before it tells anybody: its pool does not count it any more
/// and may be destroyed, though the stream has not left the ULT yet.
void leave_pool_at_end() noexcept;

}  // namespace amalgam::detail
