#include <thread>

#include <fmt/format.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/stream.hpp"
#include "tasks/ult_core.hpp"

namespace amalgam {

using detail::stream;
using detail::ult_core;

ult& ult::operator=(ult&& other) noexcept {
    ult ended(std::move(*this));  // joined at the end of this scope
    core_ = std::exchange(other.core_, nullptr);
    return *this;
}

ult::~ult() {
    if (core_ == nullptr) return;
    try {
        join();
    } catch (const std::exception& lost) {
        log(log_level::error, "tasks", "a ULT's handle was destroyed without join()",
            {{"what", lost.what()}});
    } catch (...) {
        log(log_level::error, "tasks", "a ULT's handle was destroyed without join()",
            {{"what", "an exception that is no std::exception"}});
    }
    if (core_ != nullptr) detach();  // inside a tasklet nobody can wait
}

void ult::join() {
    if (core_ == nullptr) {
        throw error(errc::invalid,
                    "this ult handle is empty: it was joined, detached or moved from before; "
                    "join once, and ask joinable() when in doubt");
    }
    stream* const here = stream::current();
    if (here != nullptr && here->running() == core_) {
        throw error(errc::invalid, "a ULT cannot join itself: let another ULT or thread join it");
    }
    if (core_->joiner.load(std::memory_order_acquire) != ult_core::finished_mark &&
        (here == nullptr || !here->join_here(*core_))) {
        waiter me;
        std::uintptr_t expected = ult_core::nobody;
        if (core_->joiner.compare_exchange_strong(expected, reinterpret_cast<std::uintptr_t>(&me),
                                                  std::memory_order_acq_rel)) {
            me.park();
        }
    }
    ult_core& core = *std::exchange(core_, nullptr);
    const std::exception_ptr failed = std::exchange(core.failed, nullptr);
    ult_core::give_back(core);
    if (failed) std::rethrow_exception(failed);
}

void ult::detach() {
    if (core_ == nullptr) {
        throw error(errc::invalid,
                    "this ult handle is empty: it was joined, detached or moved from before; "
                    "detach once, and ask joinable() when in doubt");
    }
    ult_core& core = *std::exchange(core_, nullptr);
    const auto was = core.joiner.exchange(ult_core::detached_mark, std::memory_order_acq_rel);
    if (was != ult_core::finished_mark) return;
    if (core.failed) core.log_lost_exception();
    ult_core::give_back(core);
}

void ult::migrate(pool& where) {
    if (core_ == nullptr) {
        throw error(errc::invalid,
                    "this ult handle is empty: it was joined, detached or moved from before; "
                    "migrate before that, and ask joinable() when in doubt");
    }
    if (!where.served()) detail::refuse_unserved();
    core_->wanted_home.store(&where, std::memory_order_relaxed);
    core_->requests.fetch_or(ult_core::asked_to_move, std::memory_order_release);
}

namespace this_task {

namespace {

/// The stream that runs the calling ULT.
stream& stream_of_ult(const char* what) {
    stream* const here = stream::current();
    if (here != nullptr && here->running() != nullptr) return *here;
    throw error(errc::invalid,
                fmt::format("only a ULT can {}, and this is a {}; use spawn() or post() to make it "
                            "a ULT",
                            what,
                            here == nullptr ? "plain thread"
                                            : "tasklet, timer callback or poller, which runs on "
                                              "the stream's own stack"));
}

}  // namespace

bool in_ult() noexcept {
    const stream* here = stream::current();
    return here != nullptr && here->running() != nullptr;
}

void yield() {
    stream* const here = stream::current();
    if (here == nullptr) return std::this_thread::yield();
    if (here->running() == nullptr) stream_of_ult("yield");
    here->leave_to_yield();
}

bool yield_to(ult& next) {
    if (next.core_ == nullptr) {
        throw error(errc::invalid,
                    "this ult handle is empty: it was joined, detached or moved from before; "
                    "yield to one that is joinable()");
    }
    stream& here = stream_of_ult("yield to another");
    if (here.leave_to(*next.core_)) return true;
    here.leave_to_yield();
    return false;
}

void migrate(pool& where) {
    stream& here = stream_of_ult("migrate");
    if (!where.served()) detail::refuse_unserved();
    here.leave_to_move(where);
}

pool& home() {
    return *stream_of_ult("have a home pool").running()->home();
}

void sleep_until(std::chrono::steady_clock::time_point when) {
    waiter me;
    me.park_until(when);
}

}  // namespace this_task

}  // namespace amalgam
