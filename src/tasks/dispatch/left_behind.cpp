#include "tasks/dispatch/left_behind.hpp"

#include <atomic>
#include <chrono>
#include <new>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include <amalgam/core/log.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/parking.hpp>

#include "tasks/dispatch/registry.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/limits.hpp"

namespace amalgam::detail {

namespace {

/// For ULTs that were unparked and are about to be pushed.
constexpr std::chrono::seconds time_to_be_pushed{1};

/// The home of ULTs that have lost theirs.
class limbo_pool final : public pool {
public:
    limbo_pool() noexcept : pool(pool_access::any_stream) {}
    // Only ULTs have it as their home, and only one that was running when its pool was destroyed
    // gets here for the first time.
    void push(work_unit& unit) noexcept override {
        left_behind::end_late(static_cast<ult_core&>(unit));
    }
    work_unit* pop() noexcept override { return nullptr; }
    bool empty() const noexcept override { return true; }
    std::size_t size() const noexcept override { return 0; }
};

std::atomic<void (*)(void*) noexcept> tell_guest{nullptr};

// Never destroyed: a ULT may be unparked after main() returned.
pool& limbo() noexcept {
    alignas(limbo_pool) static std::byte room[sizeof(limbo_pool)];
    static pool& one = *::new (room) limbo_pool;
    return one;
}

}  // namespace

void tell_guests_left(void (*tell)(void* guest) noexcept) noexcept {
    tell_guest.store(tell, std::memory_order_release);
}

std::exception_ptr pool_destroyed(const char* what) noexcept {
    try {
        throw error(errc::canceled,
                    fmt::format("this {} will never run again: its pool was destroyed before it "
                                "ended; keep the pool, or the stream that owns it, until then",
                                what));
    } catch (...) {
        return std::current_exception();
    }
}

void left_behind::end_all(pool& ending, std::string_view stream) noexcept {
    using clock = std::chrono::steady_clock;
    left_behind left(ending, stream);
    clock::time_point give_up{};
    for (bool more = true; more;) {
        more = left.take_queued();
        if (left.has_work_elsewhere() && !left.take_from_registry(on_its_way::skip)) {
            if (give_up == clock::time_point{}) give_up = clock::now() + time_to_be_pushed;
            more = true;
            if (clock::now() < give_up) {
                ::sched_yield();
                continue;
            }
            left.take_from_registry(on_its_way::take);
        }
        left.end_taken();  // a body's destructor may push more
    }
}

void left_behind::end_homeless(pool& ending) noexcept {
    if (ending.served()) {
        log(log_level::error, "tasks",
            "a pool was destroyed while a stream still serves it: destroy the stream first, and "
            "call drop_left() in the destructor of a custom pool");
    }
    left_behind left(ending, {});
    if (!left.has_work_elsewhere()) return;
    left.take_from_registry(on_its_way::take);
    left.end_taken();
}

void left_behind::cancel_waiting(const pool& of) noexcept {
    ult_registry::for_each([&](ult_core& who) {
        if (who.home() != &of) return;
        work_unit* expired = nullptr;
        {
            ult_core* const held = &who;
            const ult_registry::hold still({&held, 1});
            // It may have ended, and its stack may be reused by another.
            if (still.running(who) != nullptr || who.home() != &of) return;
            waiter* const at = who.waiting_on.load(std::memory_order_relaxed);
            if (at == nullptr || !at->cancelable_ || !who.may_be_canceled()) return;
            if (at->state_.load(std::memory_order_relaxed) != waiter::parked) return;
            who.requests.fetch_or(ult_core::asked_to_end, std::memory_order_seq_cst);
            expired = at->expire_only();
        }
        if (expired != nullptr) waiter::push_expired(*expired);
    });
}

join_state& left_behind::state_of(work_unit& unit) noexcept {
    if (ult_core::is_ult(unit)) return static_cast<ult_core&>(unit);
    return state_of_tasklet(unit);
}

bool left_behind::take_queued() noexcept {
    bool any = false;
    while (work_unit* const unit = of_.pop()) {
        any = true;
        if (ult_core::is_ult(*unit)) {
            auto& who = static_cast<ult_core&>(*unit);
            pool* const home = who.home();
            home == &of_ ? take(who) : home->push(who);
        } else if (is_tasklet(*unit)) {
            ++tasklets_;
            append(*unit);
        } else {
            ++others_;
        }
    }
    return any;
}

bool left_behind::take_from_registry(on_its_way what) noexcept {
    bool all = true;
    ult_registry::for_each([&](ult_core& who) {
        if (who.is_wanted_in(of_)) {
            who.requests.fetch_and(static_cast<std::uint8_t>(~ult_core::asked_to_move));
            if (who.home() != nullptr) ++expected_;  // else it has ended
        }
        if (who.home() != &of_) return;
        ult_core* const held = &who;
        const ult_registry::hold still({&held, 1});
        if (still.running(who) != nullptr) {
            of_.count_ults(-1);
            who.begin_in(limbo());
            ++ults_;
            add_name(who);
            return;
        }
        waiter* const at = who.waiting_on.load(std::memory_order_relaxed);
        std::uint32_t parked = waiter::parked;
        // A later unpark finds a permit and leaves it alone.
        if (at != nullptr &&
            at->state_.compare_exchange_strong(parked, waiter::permit, std::memory_order_acq_rel)) {
            take(who);
        } else if (what == on_its_way::take) {
            take(who);
        } else {
            all = false;
        }
    });
    return all;
}

void left_behind::take(ult_core& who) noexcept {
    of_.count_ults(-1);
    who.begin_in(limbo());
    ++ults_;
    add_name(who);
    append(who);
}

void left_behind::append(work_unit& unit) noexcept {
    unit.next_in_pool = nullptr;
    (last_ == nullptr ? first_ : last_->next_in_pool) = &unit;
    last_ = &unit;
}

void left_behind::add_name(const ult_core& who) noexcept {
    if (ults_ > limits::max_names_logged + 1) return;
    try {
        const std::string name = ults_ > limits::max_names_logged ? "..." : who.name_seen();
        if (ults_ > 1) names_ += ", ";
        names_ += name.empty() ? "unnamed" : name;
    } catch (const std::bad_alloc&) {
        return;  // one name fewer
    }
}

// Joinable ones first: another unit's body may hold the handle of one, whose destructor joins.
void left_behind::end_taken() noexcept {
    work_unit* unit = std::exchange(first_, nullptr);
    last_ = nullptr;
    work_unit* detached = nullptr;
    while (unit != nullptr) {
        work_unit* const next = unit->next_in_pool;
        if (state_of(*unit).is_detached()) {
            unit->next_in_pool = std::exchange(detached, unit);
        } else {
            end(*unit);
        }
        unit = next;
    }
    while (detached != nullptr)
        end(*std::exchange(detached, detached->next_in_pool));
}

void left_behind::end(work_unit& unit) noexcept {
    if (!ult_core::is_ult(unit)) return end_left_tasklet(unit);
    auto& who = static_cast<ult_core&>(unit);
    who.leave_behind();
    void* const guest = std::exchange(who.guest, nullptr);
    const auto tell = tell_guest.load(std::memory_order_acquire);
    if (guest != nullptr && tell != nullptr) tell(guest);
    if (!who.is_detached()) who.failed = pool_destroyed("ULT");
    if (!who.finish()) return;
    who.failed = nullptr;
    ult_core::give_back(who, nullptr);
}

bool left_behind::keeps(const pool& home) noexcept {
    return &home == &limbo();
}

void left_behind::end_late(ult_core& who) noexcept {
    if (!who.was_left_behind()) end(who);
}

left_behind::~left_behind() {
    if (expected_ != 0) {
        log(log_level::warn, "tasks",
            "a pool was destroyed to which ULTs were about to migrate: they stay where they are",
            {{"ults", expected_}});
    }
    if (ults_ + tasklets_ + others_ == 0) return;
    if (stream_.empty()) {
        log(log_level::warn, "tasks",
            "a pool was destroyed with work left in it, which will never run: keep the pool until "
            "ults() is 0 and it is empty()",
            {{"ults", ults_},
             {"names", names_},
             {"tasklets", tasklets_},
             {"other_units", others_}});
    } else {
        log(log_level::warn, "tasks",
            "a stream was destroyed with work left in its own pool, which will never run: keep the "
            "stream until main_pool().ults() is 0",
            {{"stream", stream_},
             {"ults", ults_},
             {"names", names_},
             {"tasklets", tasklets_},
             {"other_units", others_}});
    }
}

}  // namespace amalgam::detail
