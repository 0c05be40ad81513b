#pragma once

#include <amalgam/core/detail/returned_child.hpp>

namespace amalgam::detail {

/// Number of forks between the first process with an engine and this one.
unsigned forks_so_far() noexcept;

/// Guards a call of a user's function that may fork, and may destroy the calling engine. A child
/// forked inside ends in the destructor.
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
