#include <mutex>
#include <new>

#include <amalgam/core/detail/forks.hpp>

#include "rpc/core/core.hpp"

// All engines of the process, for what concerns several.
//
// In a child of fork(), an engine's threads are missing, and its sockets and shared memory belong
// to the parent. So every request to it is refused, and nothing waits for its end.

namespace amalgam::detail {

namespace {

// Engines may be static: this mutex has a trivial destructor.
constinit std::mutex lock_of_all;
engine_core* first_of_all = nullptr;

}  // namespace

void engine_core::enlist() {
    static constinit fork_handlers handlers(
        [] { lock_of_all.lock(); }, [] { lock_of_all.unlock(); },
        [] {
            for (engine_core* each = first_of_all; each != nullptr; each = each->next_of_all_)
                each->is_forked();
            lock_of_all.unlock();
        });
    count_forks();
    if (!handlers.watch()) throw std::bad_alloc();
    const std::lock_guard hold(lock_of_all);
    next_of_all_ = first_of_all;
    if (first_of_all != nullptr) first_of_all->previous_of_all_ = this;
    first_of_all = this;
}

void engine_core::delist() noexcept {
    const std::lock_guard hold(lock_of_all);
    if (next_of_all_ != nullptr) next_of_all_->previous_of_all_ = previous_of_all_;
    if (previous_of_all_ != nullptr) {
        previous_of_all_->next_of_all_ = next_of_all_;
    } else if (first_of_all == this) {
        first_of_all = next_of_all_;
    }
}

bool engine_core::any_busy_here() noexcept {
    const std::lock_guard hold(lock_of_all);
    for (const engine_core* each = first_of_all; each != nullptr; each = each->next_of_all_) {
        if (each->on_owner() && each->is_busy()) return true;
    }
    return false;
}

/// Runs in the child.
void engine_core::is_forked() noexcept {
    forked_.store(true, std::memory_order_relaxed);
    closed_.store(true, std::memory_order_relaxed);
    turns_.keep_in_child(kept_for_good);
    caller_.refuse_new();
    server_.close();
}

}  // namespace amalgam::detail
