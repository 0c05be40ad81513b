#pragma once

#include <coroutine>

#include <amalgam/tasks/work_unit.hpp>

namespace amalgam::detail {

/// A suspended coroutine as a work unit. Its home is the main pool of the stream it was suspended
/// on. Suspended on a plain thread it has none: it resumes where it is made ready, in that stream's
/// main pool or directly on that plain thread.
class coroutine_unit : public work_unit {
public:
    coroutine_unit() noexcept : work_unit(&run_unit) {}
    void prepare(std::coroutine_handle<> who) noexcept;
    /// The same, with `where` as its home.
    void prepare_in(pool& where, std::coroutine_handle<> who) noexcept;

private:
    static void run_unit(work_unit& self) noexcept;
    std::coroutine_handle<> who_;
};

}  // namespace amalgam::detail
