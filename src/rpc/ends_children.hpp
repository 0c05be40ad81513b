#pragma once

#include <amalgam/core/detail/returned_child.hpp>

namespace amalgam::detail {

/// By how many forks this process came from the first that had an engine.
unsigned forks_so_far() noexcept;

/// Around a function of the user's that may fork, and may destroy the engine that calls it: the
/// child ends at the end of this.
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
