#pragma once

#include <cstdint>
#include <new>

namespace amalgam::detail {

/// Calls `what(with)` when the calling thread ends, as the destructor of a thread_local. False: out
/// of memory.
bool at_thread_end(void (*what)(void*), void* with) noexcept;

/// One T per thread, created on first use and destroyed when the thread ends.
///
/// Takes one pointer of initial-exec thread-local storage: one load. A shared object loaded at run
/// time gets little such storage, and all its thread-locals count, so large per-thread objects
/// belong here.
template <typename T>
class [[gnu::visibility("hidden")]] thread_owned {
public:
    /// Null: the thread is ending, or out of memory.
    ///
    /// Not inlined: the caller may be a ULT that has moved to another thread since the last call,
    /// and the compiler would keep the old thread's address.
    [[gnu::noinline]] static T* get() noexcept {
        asm volatile("");
        return get_in_line();
    }
    /// The same for a caller that stays on its thread.
    [[gnu::always_inline]] static T* get_in_line() noexcept {
        T* const mine = slot();
        if (reinterpret_cast<std::uintptr_t>(mine) > ended) [[likely]]
            return mine;
        return mine == nullptr ? make() : nullptr;
    }

    /// The same, which makes none: null also before the first use.
    [[gnu::always_inline]] static T* present_in_line() noexcept {
        T* const mine = slot();
        return reinterpret_cast<std::uintptr_t>(mine) > ended ? mine : nullptr;
    }

private:
    static constexpr std::uintptr_t ended = 1;

    [[gnu::always_inline]] static T*& slot() noexcept {
        [[gnu::tls_model("initial-exec")]] static constinit thread_local T* own = nullptr;
        return own;
    }
    [[gnu::noinline]] static T* make() noexcept {
        T* const made = new (std::nothrow) T;
        if (made == nullptr) return nullptr;
        if (!at_thread_end(&end, made)) {
            delete made;
            return nullptr;
        }
        return slot() = made;
    }
    static void end(void* what) noexcept {
        auto* const mine = static_cast<T*>(what);
        // Users' objects may still ask for it.
        if constexpr (requires { mine->before_end(); }) mine->before_end();
        slot() = reinterpret_cast<T*>(ended);
        delete mine;
    }
};

}  // namespace amalgam::detail
