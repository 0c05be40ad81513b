#pragma once

#include <amalgam/core/detail/forks.hpp>

namespace amalgam::detail {

/// Terminates a fork() child that returned from a user's function called by a library thread: the
/// child must not continue in its parent's place. Reports it on standard error and calls _exit(1).
[[noreturn]] void end_returned_child() noexcept;

/// Guards a call of a user's function that may fork, and may destroy its caller. A child forked
/// inside ends in the destructor. Precondition: count_forks() has returned.
class ends_children {
public:
    ends_children() noexcept = default;
    ends_children(const ends_children&) = delete;
    ends_children& operator=(const ends_children&) = delete;
    ~ends_children() {
        if (forks_so_far() != before_) end_returned_child();
    }

private:
    const unsigned before_ = forks_so_far();
};

}  // namespace amalgam::detail
