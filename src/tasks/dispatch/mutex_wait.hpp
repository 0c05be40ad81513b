#pragma once

#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/shared_mutex.hpp>

namespace amalgam::detail {

/// The wait of a ULT or thread for a mutex. Whoever finds a waiter with this very text knows that
/// it is part of one, and so which mutex it waits for.
struct mutex_wait : wait_node {
    /// Failure: as wait_node.
    explicit mutex_wait(const mutex& what) : of(what) {}

    static constexpr char text[] = "mutex";
    const mutex& of;
};

/// The same for a shared mutex.
struct shared_mutex_wait : wait_node {
    /// Failure: as wait_node.
    explicit shared_mutex_wait(shared_mutex& what) : of(what) {}

    static constexpr char text[] = "shared mutex";
    shared_mutex& of;  // Whoever looks at it locks its list.
};

/// The same for a condition variable, with the mutex that it will lock again.
struct condition_wait : wait_node {
    /// Failure: as wait_node.
    explicit condition_wait(const mutex& which) : with(which) {}

    static constexpr char text[] = "condition variable";
    const mutex& with;
};

}  // namespace amalgam::detail
