#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/memory.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/ult_options.hpp>

namespace amalgam::detail {

class ult_core;

/// Type-erased operations on a function object. run() also destroys it.
struct closure_type {
    void (*run)(void* closure);
    void (*destroy)(void* closure) noexcept;
    std::size_t bytes;
    std::size_t align;
    const closure_type* canceled =
        nullptr;  ///< The same, but run() only fails with error{canceled}; see tasklet.
};
/// join() of the tasklet with this closure, which runs now, will throw error{canceled}.
void fail_canceled_tasklet(void* closure) noexcept;

/// Up to this size a closure is stored on the stack of its ULT, else on the heap.
inline constexpr std::size_t inline_closure_bytes = 512;

template <typename Function>
struct inline_closure {
    static void run(void* closure) {
        auto* body = static_cast<Function*>(closure);
        struct destroy {
            Function* body;
            ~destroy() { body->~Function(); }
        } at_end{body};
        std::move (*body)();
    }
    static void destroy(void* closure) noexcept { static_cast<Function*>(closure)->~Function(); }
    static void cancel(void* closure) {
        destroy(closure);
        fail_canceled_tasklet(closure);
    }
    static constexpr closure_type canceled_type{&cancel, &destroy, sizeof(Function),
                                                alignof(Function), nullptr};
    static constexpr closure_type type{&run, &destroy, sizeof(Function), alignof(Function),
                                       &canceled_type};
};

/// Where a ULT's closure is stored: just below its descriptor.
inline void* closure_of(ult_core* core) noexcept {
    return reinterpret_cast<std::byte*>(core) - inline_closure_bytes;
}

/// A ULT that is not yet in its pool and has no closure yet. The first overload: default options.
ult_core& prepare_ult(pool& where, const closure_type& type, bool joinable);
ult_core& prepare_ult(pool& where, const closure_type& type, bool joinable,
                      const ult_options& options);
/// In a pool that the calling stream serves, without locks or system calls. Null: use the others.
ult_core* prepare_ult_quickly(pool& where, const closure_type& type, bool joinable) noexcept;
void drop_ult(ult_core& core) noexcept;  // its closure could not be constructed
void start_ult(ult_core& core) noexcept;
void start_ult_unpushed(ult_core& core) noexcept;  // the caller makes it ready in its pool
void start_ult_first(ult_core& core) noexcept;     // ahead of ready ones, at top priority
void cancel_ult(ult_core& core) noexcept;          // it has not ended

/// Throws unless it has ended and may run in `where`, as ult::revive() says.
void check_revivable(ult_core* core, const pool& where);
/// Checked before, and with a closure again.
void restart_ult(ult_core& core, pool& where, const closure_type& type) noexcept;

class tasklet_core;
struct prepared_tasklet {
    tasklet_core* core;
    void* closure;
};
prepared_tasklet prepare_tasklet(pool& where, const closure_type& type, bool joinable);
void drop_tasklet(tasklet_core& made) noexcept;
void start_tasklet(tasklet_core& made) noexcept;

template <typename Function>
ult_core& launch(pool& where, Function&& body, const ult_options& options, bool joinable) {
    using closure = std::decay_t<Function>;
    static_assert(std::is_invocable_v<closure>,
                  "a ULT's function must be callable without arguments");
    if constexpr (sizeof(closure) > inline_closure_bytes || alignof(closure) > 64) {
        auto boxed = std::make_unique<closure>(std::forward<Function>(body));
        return launch(
            where, [held = std::move(boxed)] { std::move (*held)(); }, options, joinable);
    } else {
        constexpr const closure_type& type = inline_closure<closure>::type;
        const bool usual = options.name.empty() && options.stack_bytes == 0 &&
                           options.stack.empty() && options.priority == 0 && !options.pinned;
        ult_core& core = usual ? prepare_ult(where, type, joinable)
                               : prepare_ult(where, type, joinable, options);
        if constexpr (std::is_nothrow_constructible_v<closure, Function>) {
            ::new (closure_of(&core)) closure(std::forward<Function>(body));
        } else {
            try {
                ::new (closure_of(&core)) closure(std::forward<Function>(body));
            } catch (...) {
                drop_ult(core);
                throw;
            }
        }
        start_ult(core);
        return core;
    }
}

/// As launch(), on the stack of a ULT that has ended.
template <typename Function>
void relaunch(ult_core* core, pool& where, Function&& body) {
    using closure = std::decay_t<Function>;
    static_assert(std::is_invocable_v<closure>,
                  "a ULT's function must be callable without arguments");
    check_revivable(core, where);
    if constexpr (sizeof(closure) > inline_closure_bytes || alignof(closure) > 64) {
        auto boxed = std::make_unique<closure>(std::forward<Function>(body));
        relaunch(core, where, [held = std::move(boxed)] { std::move (*held)(); });
    } else {
        ::new (closure_of(core)) closure(std::forward<Function>(body));
        restart_ult(*core, where, inline_closure<closure>::type);
    }
}

template <typename Function>
tasklet_core& launch_tasklet(pool& where, Function&& body, bool joinable) {
    using closure = std::decay_t<Function>;
    static_assert(std::is_invocable_v<closure>,
                  "a tasklet's function must be callable without arguments");
    static_assert(alignof(closure) <= alignof(std::max_align_t));
    const prepared_tasklet made = prepare_tasklet(where, inline_closure<closure>::type, joinable);
    if constexpr (std::is_nothrow_constructible_v<closure, Function>) {
        ::new (made.closure) closure(std::forward<Function>(body));
    } else {
        try {
            ::new (made.closure) closure(std::forward<Function>(body));
        } catch (...) {
            drop_tasklet(*made.core);
            throw;
        }
    }
    start_tasklet(*made.core);
    return *made.core;
}

}  // namespace amalgam::detail
