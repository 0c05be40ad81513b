#include "rpc/context/engine_context.hpp"

#include <algorithm>

#include <amalgam/rpc/call_context.hpp>

namespace amalgam::detail {

bool engine_context::hand_over(work_unit& unit) noexcept {
    if (driven_) {
        if (closed_.load(std::memory_order_relaxed)) return false;
        stream().main_pool().push(unit);
        if (driver_port_ != nullptr) driver_port_->driver_ready();
        return true;
    }
    const bool open = begin_handing_over();
    if (open) stream().main_pool().push(unit);
    end_handing_over();
    return open;
}

clock::time_point engine_context::deadline_after(std::chrono::nanoseconds timeout,
                                                 const call_context* serving,
                                                 clock::time_point now) noexcept {
    clock::time_point deadline = clock::time_point::max();
    if (timeout < deadline - now) deadline = now + std::max(timeout, timeout.zero());
    if (serving != nullptr) {
        if (const auto outer = serving->deadline()) deadline = std::min(deadline, *outer);
    }
    return deadline;
}

void engine_context::check_runs() const {
    if (!closed_.load(std::memory_order_relaxed)) return;
    throw error(errc::closed, why_closed());
}

void engine_context::check_not_forked() const {
    if (forked_.load(std::memory_order_relaxed)) throw error(errc::closed, why_closed());
}

void engine_context::check_may_wait() const {
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

const char* engine_context::why_closed() const noexcept {
    return forked_.load(std::memory_order_relaxed)
               ? "this engine belongs to the parent process; create a new one after fork()"
               : "this engine has stopped; create a new one";
}

}  // namespace amalgam::detail
