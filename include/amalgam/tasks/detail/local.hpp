#pragma once

namespace amalgam::detail {

/// One pointer that belongs to the running ULT, or, outside of ULTs, to the thread. Starts null;
/// who sets it puts the old value back before the ULT ends. The layer above keeps the call it
/// serves there.
void*& task_local() noexcept;

}  // namespace amalgam::detail
