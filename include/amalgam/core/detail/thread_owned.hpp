#pragma once

#include <cstdint>
#include <new>

namespace amalgam::detail {

/// Calls `what` with `with` when the calling thread ends, as the destructor of a thread_local.
/// False: there is no memory for that.
bool at_thread_end(void (*what)(void*), void* with) noexcept;

/// One T for each thread that asks, made by the first call and destroyed when the thread ends.
///
/// It takes one pointer of thread-local storage, which is initial-exec: one load. Of such storage a
/// shared object that is loaded at run time gets little, and all that it has counts: so large
/// things of a thread belong here.
template <typename T>
class [[gnu::visibility("hidden")]] thread_owned {
public:
    /// Null: the thread ends, or there is no memory.
    ///
    /// Not inlined: the caller may be a ULT that has moved to another thread since it last asked,
    /// and the compiler would keep the old thread's address.
    [[gnu::noinline]] static T* get() noexcept {
        asm volatile("");
        T* const mine = slot();
        if (reinterpret_cast<std::uintptr_t>(mine) > ended) [[likely]]
            return mine;
        return mine == nullptr ? make() : nullptr;
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
        // What belongs to users may ask for it still.
        if constexpr (requires { mine->before_end(); }) mine->before_end();
        slot() = reinterpret_cast<T*>(ended);
        delete mine;
    }
};

}  // namespace amalgam::detail
