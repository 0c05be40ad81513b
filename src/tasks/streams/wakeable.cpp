#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "tasks/streams/stream.hpp"

// Driven streams whose caller sleeps for them. Between two run_ready() calls, either `asleep` is
// set and everything is armed, or the bell's descriptor is readable, or will be once the ringer has
// written.

namespace amalgam::detail {

void stream::check_wakeable() const {
    if (!options_.wakeable || (options_.driven && options_.clock == nullptr)) return;
    throw error(errc::invalid,
                fmt::format("stream '{}' cannot be wakeable, as only streams driven by the steady "
                            "clock can: set .driven = true, and leave .clock unset",
                            options_.name));
}

void stream::get_wakeable() {
    wake_up_call_ = std::make_unique<wake_up_call>();
    sleeper_->watch(wake_up_call_->handle());
    bell_.strike();  // nothing is armed yet
}

int stream::wait_handle() const {
    if (wake_up_call_ != nullptr) return sleeper_->handle();
    throw error(
        errc::invalid,
        fmt::format(
            "stream '{}' has no wait handle: create it with .driven = true and .wakeable = true",
            options_.name));
}

void stream::get_up() noexcept {
    // A ringer may not have written yet. Its late write would wake without need, so drain now and
    // then; not each time, as it is a system call.
    constexpr unsigned often = 8;
    const bool rung = !bell_.asleep.exchange(false, std::memory_order_seq_cst);
    if (rung || ++quiet_nights_ % often == 0) bell_.drain();
}

void stream::lie_down() noexcept {
    if (stopping_.load(std::memory_order_relaxed)) {
        wake_up_call_->cancel();
        return bell_.drain();
    }
    bell_.asleep.store(true, std::memory_order_seq_cst);  // see bell.hpp
    if (may_sleep()) {
        // Read with `asleep` set: a thread that arms an earlier timer rings.
        const time_point due = timers_->earliest();
        if (due == time_point::max() || due > now()) return wake_up_call_->set(due);
    }
    bell_.ring();
}

void stream::set_spin(std::chrono::nanoseconds time) noexcept {
    spin_.set(time);
    wake();
}

}  // namespace amalgam::detail
