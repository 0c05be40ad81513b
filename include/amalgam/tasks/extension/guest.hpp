#pragma once

namespace amalgam {
class work_unit;
}

namespace amalgam::detail {

class ult_core;

/// A second pointer like task_local(), for an interface of another library on top of this one,
/// which keeps its own descriptor of the ULT there. Initially null; whoever sets it restores null
/// before the ULT ends.
void*& guest() noexcept;

/// The same of any ULT that has not ended: for pools, which are handed units. `ult` must be a ULT.
void*& guest_of(work_unit& ult) noexcept;
void*& guest_of(ult_core& ult) noexcept;
/// The same, but null for a unit that is no ULT.
void* guest_or_null(work_unit& unit) noexcept;
/// Lowest address of the stack of the ULT that pools know by `unit`; null if there is none. A lock,
/// and a look at all stacks.
void* stack_of(const work_unit* unit) noexcept;
/// What raises the stacks of ULTs with a guest, for the message of an overflow: a literal.
void name_stack_option(const char* what) noexcept;
/// From now on, `tell` is called with the guest of each ULT that will never run again, as its pool
/// was destroyed. There is one such function; null: none. It may unpark others, not wait.
void tell_guests_left(void (*tell)(void* guest) noexcept) noexcept;
/// The unit that pools and schedulers know the ULT by.
work_unit& unit_of(ult_core& ult) noexcept;
/// The running ULT's; null on a plain thread and inside a tasklet.
work_unit* running_unit() noexcept;
/// Whether a ULT with a handle has ended, so that join() returns at once.
bool has_ended(const ult_core& ult) noexcept;

}  // namespace amalgam::detail
