#pragma once

namespace amalgam {
class execution_stream;
class work_unit;
}  // namespace amalgam

namespace amalgam::detail {

/// A pointer that belongs to the running ULT or, outside a ULT, to the thread. Initially null;
/// whoever sets it restores the old value before the ULT ends. The layer above keeps the call it is
/// serving there.
void*& task_local() noexcept;

/// Where the caller runs. For who asks more than one of these at once; valid until it may switch.
struct task_place {
    execution_stream* stream;  ///< Null: a plain thread.
    work_unit* ult;            ///< Null: a plain thread, or the stream's own stack.
    void** local;              ///< &task_local()
};
task_place task_here() noexcept;

}  // namespace amalgam::detail
