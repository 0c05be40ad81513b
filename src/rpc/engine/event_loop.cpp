#include <algorithm>
#include <thread>

#include <poll.h>

#include <amalgam/tasks/ult.hpp>

#include "rpc/engine/core.hpp"

// Engines driven by their caller. Their state belongs to the loop's thread: inside progress(), and
// also outside, where nothing runs concurrently.

namespace amalgam::detail {

const void* engine_core::this_thread() noexcept {
    thread_local char mark = 0;
    return &mark;
}

bool engine_core::on_idle_loop() const noexcept {
    if (loop_thread_.load(std::memory_order_relaxed) == nullptr) return false;
    if (loop_thread_.load(std::memory_order_relaxed) != this_thread()) return false;
    streams_.first().wake();  // The caller's next action may need progress().
    return true;
}

engine_core::loop_turn::loop_turn(engine_core& core) noexcept : core_(core) {
    while (core_.looping_.exchange(true, std::memory_order_acquire))
        std::this_thread::yield();
    core_.loop_thread_.store(this_thread(), std::memory_order_relaxed);
}

engine_core::loop_turn::~loop_turn() {
    core_.looping_.store(false, std::memory_order_release);
}

void engine_core::check_runs() const {
    if (!closed_.load(std::memory_order_relaxed)) return;
    throw error(errc::closed, why_closed());
}

void engine_core::check_may_wait() const {
    if (this_task::in_ult()) return;
    if (driven_) {
        throw error(
            errc::invalid,
            "cannot wait here on a network in virtual time, as time would stand still: use start() "
            "and loop_network::run_until_idle(), or wait in a ULT started by engine::spawn()");
    }
    if (on_idle_loop()) {
        throw error(
            errc::invalid,
            "the thread that calls this engine's progress() cannot wait for its results: use "
            "start() or post(), or wait in a ULT started by engine::spawn() or in another thread");
    }
}

std::size_t engine_core::progress(std::size_t most) {
    if (!streams_.driven_by_caller()) {
        throw error(errc::invalid,
                    "this engine makes progress by itself: progress() is only for engines created "
                    "with engine_options{.progress = {.by = progress_by::caller}}");
    }
    if (forked_.load(std::memory_order_relaxed)) check_runs();
    if (execution_stream::current() == &stream()) {
        throw error(errc::invalid,
                    "progress() must not be called from within itself, for example by a handler: "
                    "wait instead, with a future or this_task::yield()");
    }
    // Another thread is stopping the engine, and makes its progress meanwhile.
    if (looping_.load(std::memory_order_relaxed) && stopping_.load(std::memory_order_relaxed)) {
        return 0;
    }
    std::size_t happened = 0;
    {
        const loop_turn mine(*this);
        happened = stream().run_ready(most);
    }
    settle();
    return happened;
}

void engine_core::drive_until_quiet(clock::duration at_most) {
    const clock::time_point end = now() + at_most;
    for (;;) {
        stream().run_ready();
        if (is_quiet()) return;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now());
        if (left <= left.zero()) return;
        pollfd wakes{stream().wait_handle(), POLLIN, 0};
        ::poll(&wakes, 1,
               static_cast<int>(std::min(left, std::chrono::milliseconds(60'000)).count()));
    }
}

}  // namespace amalgam::detail
