#pragma once

#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/mutex.hpp>

namespace amalgam::detail {

/// The wait of a ULT or thread for a mutex. Whoever finds a waiter with this very text knows that
/// it is part of one, and so which mutex it waits for.
struct mutex_wait : wait_node {
    /// Failure: as wait_node.
    explicit mutex_wait(const mutex& what) : of(what) {}

    static constexpr char text[] = "mutex";
    const mutex& of;
};

}  // namespace amalgam::detail
