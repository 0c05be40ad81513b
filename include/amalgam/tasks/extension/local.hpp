#pragma once

namespace amalgam::detail {

/// A pointer that belongs to the running ULT or, outside a ULT, to the thread. Initially null;
/// whoever sets it restores the old value before the ULT ends. The layer above keeps the call it is
/// serving there.
void*& task_local() noexcept;

}  // namespace amalgam::detail
