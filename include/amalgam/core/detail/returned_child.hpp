#pragma once

namespace amalgam::detail {

/// Terminates a fork() child that returned from a user's function called by a library thread: the
/// child must not continue in its parent's place. Reports it on standard error and calls _exit(1).
[[noreturn]] void end_returned_child() noexcept;

/// Counts the forks that ends_children looks for, from the first call on. Throws std::bad_alloc.
void count_forks();
/// Number of forks between the process that first counted them and this one.
unsigned forks_so_far() noexcept;

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
