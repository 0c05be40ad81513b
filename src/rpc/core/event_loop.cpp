#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <poll.h>

#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"

// Engines driven by their caller. Their state belongs to the loop's thread: inside progress(), and
// also outside, where nothing runs concurrently.

namespace amalgam::detail {

engine_core::loop_turn::loop_turn(engine_core& core) noexcept : core_(core) {
    while (!core_.turns_.keep(kept_to_end))
        std::this_thread::yield();
    while (core_.turns_.being_driven())
        std::this_thread::yield();
    core_.turns_.drives_here();
}

engine_core::loop_turn::~loop_turn() {
    core_.turns_.let_go(kept_to_end);
}

void engine_core::check_driven_by_caller(std::string_view asked) const {
    if (streams_.driven_by_caller()) return;
    throw error(errc::invalid,
                fmt::format("this engine makes progress by itself: {} is only for engines created "
                            "with engine_options{{.progress = {{.by = progress_by::caller}}}}",
                            asked));
}

void engine_core::check_not_inside_progress() const {
    if (!driven_here(streams_.first())) return;
    throw error(errc::invalid,
                "progress() must not be called from within itself, for example by a handler: wait "
                "instead, with a future or this_task::yield()");
}

// Most turns of a loop find nothing: what the port has is looked at here, and not by way of the
// stream's pollers. What is rare ends in calls, so that progress() saves little for it.

/// This may be gone afterwards.
inline std::size_t engine_core::settled(std::size_t happened) noexcept {
    settle();
    return happened;
}

[[gnu::noinline]] std::size_t engine_core::progress_asking(std::size_t most) noexcept {
    return settled(work_->ask() ? turns_.drive_with_work(most) : turns_.drive_without_work(most));
}

/// The stream was taken.
[[gnu::always_inline]] inline std::size_t engine_core::progress_taken(std::size_t most) noexcept {
    if (has_waiting_work()) return settled(turns_.drive_with_work(most));
    switch (work_->look()) {
        case port_work::looked::nothing:
            return settled(turns_.drive_without_work(most));
        case port_work::looked::something:
            return settled(turns_.drive_with_work(most));
        case port_work::looked::unclear:
            break;
    }
    return progress_asking(most);
}

std::size_t engine_core::progress(std::size_t most) {
    return turns_.take() ? progress_taken(most) : progress_in_turn(most);
}

[[gnu::noinline]] std::size_t engine_core::progress_in_turn(std::size_t most) {
    while (may_try_again())
        if (turns_.take()) return progress_taken(most);
    return 0;
}

/// The stream was not taken. False: another thread is stopping the engine, and makes its progress
/// meanwhile.
bool engine_core::may_try_again() const {
    check_driven_by_caller("progress()");
    if (forked_.load(std::memory_order_relaxed)) check_runs();
    check_not_inside_progress();
    if (stopping_.load(std::memory_order_relaxed)) return false;
    std::this_thread::yield();
    return true;
}

void engine_core::drive_until_quiet(clock::duration at_most) {
    const clock::time_point end = now() + at_most;
    for (;;) {
        turns_.drive_kept();
        if (is_quiet()) return;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now());
        if (left <= left.zero()) return;
        pollfd wakes{stream().wait_handle(), POLLIN, 0};
        ::poll(&wakes, 1,
               static_cast<int>(std::min(left, std::chrono::milliseconds(60'000)).count()));
    }
}

}  // namespace amalgam::detail
