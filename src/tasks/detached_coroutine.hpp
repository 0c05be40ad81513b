#pragma once

#include <coroutine>
#include <exception>

namespace amalgam {

/// For tests: a coroutine that starts at once, and that nobody waits for.
struct detached_coroutine {
    struct promise_type {
        detached_coroutine get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

}  // namespace amalgam
