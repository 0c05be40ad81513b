#pragma once

#include <chrono>
#include <coroutine>
#include <exception>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

/// A driven stream in virtual time, and a log of what its ULTs saw.
struct driven_stream_test : testing::Test {
    manual_clock time;
    execution_stream stream{execution_stream_options{.clock = &time, .driven = true}};
    std::string seen;

    void run() { stream.run_ready(); }
    template <typename Body>
    void run(Body&& body) {
        post(stream, std::forward<Body>(body));
        run();
    }
    void advance(std::chrono::nanoseconds by) {
        time.advance(by);
        run();
    }
    /// What was logged since the last call.
    std::string news() { return std::exchange(seen, {}); }
};

/// A coroutine that starts at once and is not awaited.
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
