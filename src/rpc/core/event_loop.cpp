#include <algorithm>
#include <thread>

#include <fmt/format.h>
#include <poll.h>

#include <amalgam/tasks/ult.hpp>

#include "rpc/core/core.hpp"

// Engines driven by their caller. Their state belongs to the loop's thread: inside progress(), and
// also outside, where nothing runs concurrently.

namespace amalgam::detail {

// Half of the protocol with drive(): stores `kept`, then looks whether the stream is in use.
engine_core::loop_turn::loop_turn(engine_core& core) noexcept : core_(core) {
    while ((core_.turns_.kept.fetch_or(kept_to_end, std::memory_order_seq_cst) & kept_to_end) != 0)
        std::this_thread::yield();
    while (being_driven(core_.stream()))
        std::this_thread::yield();
    core_.turns_.last.store(this_driver(), std::memory_order_relaxed);
}

engine_core::loop_turn::~loop_turn() {
    core_.turns_.kept.fetch_and(~kept_to_end, std::memory_order_release);
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
// stream's pollers.
std::size_t engine_core::progress(std::size_t most) {
    if (!take_to_drive(
            *driven_word_, turns_, [this]() -> auto& { return stream(); })) [[unlikely]]
        return progress_in_turn(most);
    const std::size_t happened = has_waiting_work() || work_->has_work()
                                     ? drive_with_work(stream(), most, turns_, *looked_at_)
                                     : drive_without_work(stream(), most, turns_, *looked_at_);
    settle();
    return happened;
}

[[gnu::noinline]] std::size_t engine_core::progress_in_turn(std::size_t most) {
    while (may_try_again()) {
        const std::size_t happened = drive(stream(), turns_, most);
        if (happened == drive_turns::not_now) continue;
        settle();
        return happened;
    }
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
        drive_kept(stream());
        if (is_quiet()) return;
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now());
        if (left <= left.zero()) return;
        pollfd wakes{stream().wait_handle(), POLLIN, 0};
        ::poll(&wakes, 1,
               static_cast<int>(std::min(left, std::chrono::milliseconds(60'000)).count()));
    }
}

}  // namespace amalgam::detail
