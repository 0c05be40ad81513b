#pragma once

#include <optional>

#include <sys/types.h>
#include <unistd.h>

#include <amalgam/core/detail/thread_owned.hpp>

#include "tasks/dispatch/block_cache.hpp"
#include "tasks/dispatch/local_values.hpp"
#include "tasks/stacks/call_stack.hpp"
#include "tasks/stacks/memory.hpp"
#include "tasks/stacks/recycler.hpp"

namespace amalgam::detail {

/// Gives a thread an alternate signal stack, unless it has one.
class alternate_stack {
public:
    alternate_stack() noexcept;
    ~alternate_stack();
    alternate_stack(const alternate_stack&) = delete;
    alternate_stack& operator=(const alternate_stack&) = delete;

private:
    stack_memory memory_;
};

/// This layer's per-thread data.
///
/// Owner: the thread; `own` creates and destroys it.
struct thread_store {
    free_stock stacks;  ///< Stacks of ULTs.
    block_cache blocks;
    std::optional<local_values> locals{std::in_place};  ///< Of the thread outside of ULTs.
    std::optional<alternate_stack> for_signals;
    exception_state* const exceptions = exception_state::of_thread();  ///< Never moves.
    const pid_t id = ::gettid();

    using own = thread_owned<thread_store>;
    void before_end() noexcept { locals.reset(); }
    ~thread_store();
};

}  // namespace amalgam::detail
