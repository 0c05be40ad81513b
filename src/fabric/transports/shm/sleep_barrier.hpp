#pragma once

namespace amalgam::detail {

/// The memory barrier that lets senders go without one.
///
/// A sender publishes a record and then looks whether the reader sleeps; a reader says that it
/// sleeps and then looks for records. Both must not miss each other, so each needs a full barrier
/// between its store and its load. A sender's would cost every message; the kernel can run it on
/// the sender's behalf at the moment when the reader falls asleep (membarrier(2), global
/// expedited), which costs the reader a microsecond then and the sender nothing.
///
/// It works for processes that have joined. One that has not, or that sends to a reader without
/// it, pays for a barrier with each message.

/// Lets others' barriers reach this process. False: the kernel cannot, or is not allowed to.
bool join_sleep_barriers() noexcept;

/// A full barrier in every process that has joined. Precondition: join_sleep_barriers().
void sleep_barrier() noexcept;

}  // namespace amalgam::detail
