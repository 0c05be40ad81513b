#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include <amalgam/tasks/task_hook.hpp>

namespace amalgam::detail {

class dispatcher;
class ult_core;

struct hook_slot {
    std::atomic<const task_hook::function*> tell{nullptr};
    std::atomic<unsigned> calls{0};  ///< That are under way.
};

/// The hooks of a process, and what tells them.
///
/// Threads: any.
class hooks {
public:
    static bool any() noexcept { return used_.load(std::memory_order_relaxed) != 0; }

    // Call only if any(). None of these is inlined, and none switches.

    static void tell(task_event what, const work_unit& of) noexcept;
    static void tell_parked(const ult_core& who, const char* waits_for) noexcept;
    static void tell(task_event what, execution_stream& of) noexcept;
    /// The unit may be gone.
    static void tell_ended(unit_kind kind, const void* id) noexcept;

    /// Whether the calling thread is in a hook.
    static bool telling() noexcept;

    static std::size_t add(const task_hook::function& tell);
    /// Returns once it is not called any more. False: the caller is in a hook, so it may be.
    static bool remove(std::size_t slot) noexcept;
    /// For the rest of the process: a hook's function that may still run.
    static void keep(std::unique_ptr<task_hook::function> running) noexcept;

    /// See forks.hpp.
    static std::mutex& lock() noexcept { return lock_; }
    static void forget_others_in_child() noexcept;

private:
    static void tell_all(task_event_info what) noexcept;

    [[gnu::visibility("hidden")]] static inline constinit std::atomic<unsigned> used_{0};
    [[gnu::visibility("hidden")]] static inline constinit std::array<hook_slot, 8> slots_{};
    [[gnu::visibility("hidden")]] static inline constinit std::mutex lock_;
};

}  // namespace amalgam::detail
