#include <ctime>
#include <exception>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/timer.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/hooks.hpp"
#include "tasks/streams/stream.hpp"

namespace amalgam {

namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

/// `until`: absolute, on CLOCK_MONOTONIC, as steady_clock; null: no limit.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t while_it_is,
                const timespec* until) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, while_it_is, until, nullptr,
              FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

timespec to_timespec(waiter::time_point when) noexcept {
    const auto since = when.time_since_epoch();
    const auto whole = std::chrono::floor<std::chrono::seconds>(since);
    return {whole.count(), (since - whole).count()};
}

}  // namespace

waiter::waiter() : unit_(nullptr) {
    detail::dispatcher* const here = detail::dispatcher::current();
    if (here == nullptr) return;
    unit_ = here->running();
    if (unit_ == nullptr) {
        throw error(
            errc::invalid,
            "a tasklet, timer callback or poller cannot wait: it runs on the stream's own stack "
            "and would block the whole stream; use spawn() or post() to run it as a ULT");
    }
}

void waiter::park() noexcept {
    if (unit_ == nullptr) {
        park_thread(nullptr);
    } else {
        if (state_.load(std::memory_order_relaxed) == empty) {
            cancelable_ = false;  // nothing but the permit ends this wait
            detail::dispatcher::current()->leave_to_park(*this);
        }
        // An exchange, not a store: a second permit given meanwhile is consumed too, so what its
        // giver wrote must be visible.
        state_.exchange(empty, std::memory_order_acquire);
    }
}

bool waiter::park_until(time_point deadline) noexcept {
    if (unit_ == nullptr) return park_thread(deadline == time_point::max() ? nullptr : &deadline);
    wait_unit(deadline);
    return state_.exchange(empty, std::memory_order_acquire) == permit;
}

bool waiter::park_once_until(time_point deadline) noexcept {
    if (unit_ == nullptr) return park_until(deadline);
    wait_unit(deadline);
    return state_.load(std::memory_order_acquire) == permit ||
           state_.exchange(empty, std::memory_order_acquire) == permit;
}

// Inlined: a return after a switch is mispredicted.
[[gnu::always_inline]] inline void waiter::wait_unit(time_point deadline) noexcept {
    if (state_.load(std::memory_order_relaxed) != empty) return;
    if (deadline != time_point::max()) return wait_unit_until(deadline);
    detail::dispatcher::current()->leave_to_park(*this);
}

[[gnu::noinline]] void waiter::wait_unit_until(time_point deadline) noexcept {
    struct alarm final : timer {
        alarm(detail::timer_heap& where, waiter& whom) noexcept
            : timer(
                  where, [](timer& self) noexcept { static_cast<alarm&>(self).who.expire(); },
                  [](const timer& self) noexcept {
                      return static_cast<const alarm&>(self).who.unit_->home();
                  }),
              who(whom) {}
        waiter& who;
    };
    detail::dispatcher& here = *detail::dispatcher::current();
    alarm at_deadline(here.of().loop().timers(), *this);
    at_deadline.arm(deadline);
    here.leave_to_park(*this);
}

// The context of the ULT or coroutine is saved now. False: it was unparked before.
bool waiter::commit() noexcept {
    std::uint32_t expected = empty;
    return state_.compare_exchange_strong(expected, parked, std::memory_order_acq_rel,
                                          std::memory_order_acquire);
}

[[gnu::always_inline]] static inline void push_unparked(work_unit& unit) noexcept {
    detail::dispatcher* const here = detail::dispatcher::current();
    if (here == nullptr || !here->work().push_own(unit)) unit.make_ready();
}

[[gnu::noinline]] static void push_unparked_told(work_unit& unit) noexcept {
    detail::hooks::tell(task_event::resumed, unit);
    push_unparked(unit);
}

void waiter::unpark() noexcept {
    // Read first: after the exchange *this may be gone.
    work_unit* const unit = unit_;
    const std::uint32_t was = state_.exchange(permit, std::memory_order_acq_rel);
    if (was != parked) return;
    if (unit == nullptr) {
        futex_wake(state_);  // only the address; waking someone else there is harmless
    } else if (detail::hooks::any()) [[unlikely]] {
        push_unparked_told(*unit);
    } else {
        push_unparked(*unit);
    }
}

work_unit* waiter::unpark_only() noexcept {
    work_unit* const unit = unit_;
    if (state_.exchange(permit, std::memory_order_acq_rel) != parked) return nullptr;
    if (unit == nullptr) futex_wake(state_);
    return unit;
}

work_unit* waiter::expire_only() noexcept {
    work_unit* const unit = unit_;
    std::uint32_t was = state_.load(std::memory_order_relaxed);
    do {
        if (was == permit) return nullptr;
    } while (!state_.compare_exchange_weak(was, expired, std::memory_order_acq_rel,
                                           std::memory_order_relaxed));
    return was == parked ? unit : nullptr;
}

void waiter::push_expired(work_unit& unit) noexcept {
    if (detail::hooks::any()) [[unlikely]]
        detail::hooks::tell(task_event::resumed, unit);
    unit.make_ready();
}

void waiter::expire() noexcept {
    if (work_unit* const unit = expire_only()) push_expired(*unit);
}

bool waiter::park_thread(const time_point* deadline) noexcept {
    for (int looks = 0; looks < 8 && state_.load(std::memory_order_relaxed) == empty; ++looks) {
        detail::cpu_relax();
    }
    if (commit()) {
        timespec until{};
        if (deadline != nullptr) until = to_timespec(*deadline);
        while (state_.load(std::memory_order_acquire) == parked) {
            futex_wait(state_, parked, deadline == nullptr ? nullptr : &until);
            if (deadline == nullptr || std::chrono::steady_clock::now() < *deadline) continue;
            std::uint32_t expected = parked;
            if (state_.compare_exchange_strong(expected, empty, std::memory_order_acq_rel)) {
                return false;
            }
        }
    }
    state_.exchange(empty, std::memory_order_acquire);
    return true;
}

namespace detail {

void throw_if_canceled() {
    dispatcher* const here = dispatcher::current();
    ult_core* const self = here == nullptr ? nullptr : here->running();
    if (self == nullptr || self->cancels_later != 0 || std::uncaught_exceptions() != 0) return;
    if (!self->take_cancel()) return;
    throw error(errc::canceled, "this ULT was canceled while it waited");
}

cancel_later::cancel_later() noexcept {
    dispatcher* const here = dispatcher::current();
    who_ = here == nullptr ? nullptr : here->running();
    if (who_ != nullptr) ++who_->cancels_later;
}

cancel_later::~cancel_later() {
    if (who_ != nullptr) --who_->cancels_later;
}

}  // namespace detail

}  // namespace amalgam
