#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <poll.h>

#include <amalgam/tasks/ult.hpp>

#include "rpc/engine/core.hpp"

// Engines driven by their caller. Their state belongs to the loop's thread: inside progress(), and
// also outside, where nothing runs concurrently.

namespace amalgam::detail {

engine_core::loop_turn::loop_turn(engine_core& core) noexcept : core_(core) {
    while (core_.looping_.exchange(true, std::memory_order_acquire))
        std::this_thread::yield();
    core_.loop_thread_.store(this_thread(), std::memory_order_relaxed);
}

engine_core::loop_turn::~loop_turn() {
    core_.looping_.store(false, std::memory_order_release);
}

void engine_core::check_driven_by_caller(std::string_view asked) const {
    if (streams_.driven_by_caller()) return;
    throw error(errc::invalid,
                fmt::format("this engine makes progress by itself: {} is only for engines created "
                            "with engine_options{{.progress = {{.by = progress_by::caller}}}}",
                            asked));
}

[[gnu::noinline]] void engine_core::check_not_inside_progress() const {
    if (execution_stream::current() != &streams_.first()) return;
    throw error(errc::invalid,
                "progress() must not be called from within itself, for example by a handler: wait "
                "instead, with a future or this_task::yield()");
}

std::size_t engine_core::progress(std::size_t most) {
    if (!streams_.driven_by_caller()) [[unlikely]]
        check_driven_by_caller("progress()");
    if (forked_.load(std::memory_order_relaxed)) [[unlikely]]
        check_runs();
    if (looping_.load(std::memory_order_relaxed)) [[unlikely]] {
        check_not_inside_progress();
        // Another thread is stopping the engine, and makes its progress meanwhile.
        if (stopping_.load(std::memory_order_relaxed)) return 0;
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
