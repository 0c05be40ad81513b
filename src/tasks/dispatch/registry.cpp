#include "tasks/dispatch/registry.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <new>
#include <vector>

#include <sched.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"

namespace amalgam::detail {

namespace {

// Never destroyed: streams may end after main() returned.
struct all_streams {
    std::mutex lock;
    std::vector<dispatcher*> known;
};
all_streams& streams() noexcept {
    alignas(all_streams) static std::byte memory[sizeof(all_streams)];
    static auto* const all = new (memory) all_streams;
    return *all;
}

/// Both clocks when the first stream was created.
struct both_clocks {
    std::uint64_t ticks = cycles();
    std::chrono::steady_clock::time_point at = std::chrono::steady_clock::now();
};
const both_clocks& reference_time() noexcept {
    static const both_clocks first;
    return first;
}

}  // namespace

std::chrono::nanoseconds ult_registry::time_since(std::uint64_t ticks) noexcept {
    const both_clocks& first = reference_time();
    const both_clocks now;
    if (ticks >= now.ticks || ticks < first.ticks) return {};
    const std::chrono::duration<double, std::nano> passed = now.at - first.at;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        passed *
        (static_cast<double>(now.ticks - ticks) / static_cast<double>(now.ticks - first.ticks)));
}

void ult_registry::add(ult_core& made) noexcept {
    const std::lock_guard hold_list(lock_);
    made.prev_known_ = nullptr;
    made.next_known_ = first_;
    if (first_ != nullptr) first_->prev_known_ = &made;
    first_ = &made;
}

void ult_registry::remove(ult_core& unmapped) noexcept {
    const std::lock_guard hold_list(lock_);
    (unmapped.prev_known_ == nullptr ? first_ : unmapped.prev_known_->next_known_) =
        unmapped.next_known_;
    if (unmapped.next_known_ != nullptr) unmapped.next_known_->prev_known_ = unmapped.prev_known_;
}

void ult_registry::for_each(const std::function<void(ult_core&)>& look) {
    const std::lock_guard hold_list(lock_);
    for (ult_core* each = first_; each != nullptr; each = each->next_known_)
        look(*each);
}

void ult_registry::add(dispatcher& started) {
    reference_time();
    const std::lock_guard hold_list(streams().lock);
    streams().known.push_back(&started);
}

void ult_registry::with_streams(const std::function<void(std::span<dispatcher* const>)>& look) {
    const std::lock_guard hold_list(streams().lock);
    look(streams().known);
}

void ult_registry::with_streams_and_stacks(
    const std::function<void(std::span<dispatcher* const>)>& look) {
    const std::lock_guard hold_list(lock_);
    with_streams(look);
}

std::mutex& ult_registry::lock_of_streams() noexcept {
    return streams().lock;
}

std::span<dispatcher* const> ult_registry::streams_locked() noexcept {
    return streams().known;
}

void ult_registry::remove(dispatcher& stopped) noexcept {
    const std::lock_guard hold_list(streams().lock);
    auto& known = streams().known;
    known.erase(std::remove(known.begin(), known.end(), &stopped), known.end());
}

// A stream announces what it is about to run, then checks the requests; we write the requests, then
// check what runs. The stream has no barrier in between, which would cost every switch: ours runs
// on all threads and serves both sides. One barrier serves any number of ULTs.
ult_registry::hold::hold(std::span<ult_core* const> all) noexcept
    : streams_stay_(streams().lock), all_(all) {
    for (ult_core* each : all)
        each->requests.fetch_or(ult_core::held, std::memory_order_seq_cst);
    barrier_on_all_threads();
}

ult_registry::hold::~hold() {
    for (ult_core* each : all_)
        let_go(*each);
}

void ult_registry::hold::let_go(ult_core& one) noexcept {
    one.requests.fetch_and(static_cast<std::uint8_t>(~ult_core::held), std::memory_order_release);
}

const dispatcher* ult_registry::hold::running(const ult_core& one) const noexcept {
    for (const dispatcher* each : streams().known) {
        if (each->running_seen() == &one) return each;
        // It has left, but its context is not saved yet.
        while (each->leaving_seen() == &one)
            ::sched_yield();
    }
    return nullptr;
}

bool ult_registry::is_parked(const ult_core& held) noexcept {
    const waiter* const what = held.waiting_on.load(std::memory_order_relaxed);
    return what != nullptr && what->state_.load(std::memory_order_acquire) == waiter::parked;
}

void ult_registry::let_end(const join_state& what) noexcept {
    barrier_on_all_threads();
    const std::lock_guard hold_streams(streams().lock);
    for (const dispatcher* each : streams().known) {
        while (each->ending_seen() == &what)
            ::sched_yield();
    }
}

const dispatcher* ult_registry::hold::stream_of(const pool& home) const noexcept {
    const auto& known = streams().known;
    const auto found = std::find_if(known.begin(), known.end(), [&](dispatcher* each) {
        return &each->work().main_pool() == &home;
    });
    return found == known.end() ? nullptr : *found;
}

}  // namespace amalgam::detail
