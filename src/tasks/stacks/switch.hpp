#pragma once

// switch_stack(from, to, data): switches to `to`, passing `data`, and saves the caller's stack in
// `from`. Returns when someone switches back, with the data passed then.
#include "tasks/stacks/suspended_stack.hpp"
#if !defined(AMALGAM_OWN_STACK_SWITCH)
#include "tasks/stacks/switch_boost.hpp"
#elif defined(__x86_64__)
#include "tasks/stacks/switch_x86_64.hpp"
#else
#include "tasks/stacks/switch_aarch64.hpp"
#endif

#if defined(AMALGAM_OWN_STACK_SWITCH)

namespace amalgam::detail {

/// Prepares a stack that ends below `top`. The first switch to it calls `entry`, which never
/// returns.
suspended_stack begin_stack(void* top, void (*entry)(arrival first)) noexcept;

template <void (*entry)(arrival first)>
suspended_stack make_stack(void* top, std::size_t) noexcept {
    return begin_stack(top, entry);
}

}  // namespace amalgam::detail

#endif
