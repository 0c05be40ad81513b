#pragma once

namespace amalgam::detail {

/// The memory barrier that spares senders theirs.
///
/// A sender publishes a record, then checks whether the reader sleeps; a reader declares that it
/// sleeps, then checks for records. So that they cannot miss each other, each needs a full barrier
/// between its store and its load. The sender's would cost every message. Instead the kernel can
/// run it on the sender's behalf at the moment the reader falls asleep (membarrier(2), global
/// expedited), which costs the reader a microsecond and the sender nothing.
///
/// This works for processes that have joined. One that has not, or that sends to a reader without
/// it, pays for a barrier per message.

/// Lets other processes' barriers reach this one. False: the kernel cannot, or may not.
bool join_sleep_barriers() noexcept;

/// A full barrier in every process that has joined. Precondition: join_sleep_barriers().
void sleep_barrier() noexcept;

}  // namespace amalgam::detail
