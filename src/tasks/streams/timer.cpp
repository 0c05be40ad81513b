#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <type_traits>
#include <utility>

#include <amalgam/tasks/start_sleep.hpp>
#include <amalgam/tasks/timer.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/left_behind.hpp"
#include "tasks/dispatch/registry.hpp"
#include "tasks/streams/stream.hpp"
#include "tasks/streams/timer_heap.hpp"

namespace amalgam {

void timer::arm(time_point when) noexcept {
    detail::timer_heap::arm(*this, when);
}

bool timer::cancel() noexcept {
    return detail::timer_heap::cancel(*this);
}

namespace detail {

namespace {

struct heap_shelf {
    std::mutex lock;
    timer_heap* first = nullptr;
};
constinit heap_shelf unused_heaps;
/// Waits without a stream at the moment, by the steady clock.
constinit timer_heap homeless;
static_assert(std::is_trivially_destructible_v<heap_shelf> &&
                  std::is_trivially_destructible_v<timer_heap>,
              "streams and timers may end after main() returned");

/// How well `each` suits a wait that makes something ready in `home`; 0: not at all.
int fitness(stream& each, const pool& home) noexcept {
    const int serves = each.schedulers().pools().serves_seen(home) ? 2 : 0;
    return each.options().driven ? serves : serves + 1;
}

timer::time_point moved(timer::time_point when, timer::time_point from,
                        timer::time_point to) noexcept {
    constexpr timer::time_point last = timer::time_point::max() - timer::time_point::duration(1);
    if (when <= from) return to;
    return when - from >= last - to ? last : to + (when - from);
}

}  // namespace

timer_heap& timer_heap::take() {
    {
        const std::lock_guard hold(unused_heaps.lock);
        if (unused_heaps.first != nullptr)
            return *std::exchange(unused_heaps.first, unused_heaps.first->next_);
    }
    return *std::make_unique<timer_heap>().release();
}

void timer_heap::give_back(timer_heap& used) noexcept {
    used.lock_.lock();
    for (timer* each = used.take_all(); each != nullptr;)
        std::exchange(each, each->next_)->next_ = nullptr;
    used.of_.store(nullptr, std::memory_order_relaxed);
    used.note_earliest();
    used.lock_.unlock();
    const std::lock_guard hold(unused_heaps.lock);
    used.next_ = std::exchange(unused_heaps.first, &used);
}

std::mutex& timer_heap::shelf_lock() noexcept {
    return unused_heaps.lock;
}

spin_lock& timer_heap::homeless_lock() noexcept {
    return homeless.lock_;
}

void timer_heap::open(dispatcher& of, bell& rings) noexcept {
    of_.store(&of, std::memory_order_relaxed);
    rings_.store(&rings, std::memory_order_relaxed);
    ult_registry::with_streams([this](std::span<dispatcher* const>) { closed_ = false; });
    if (homeless.earliest() != time_point::max()) homeless.move_waits();
}

void timer_heap::close() noexcept {
    ult_registry::with_streams([this](std::span<dispatcher* const>) { closed_ = true; });
    move_waits();
}

// The registry's lock keeps all streams and the pools of waiting ULTs: see left_behind. All movers
// of timers hold it, so two heaps may be locked in either order.
void timer_heap::move_waits() noexcept {
    ult_registry::with_streams([this](std::span<dispatcher* const> all) {
        const std::lock_guard hold(lock_);
        timer* next = take_all();
        while (next != nullptr) {
            timer& each = *std::exchange(next, next->next_);
            const pool* const home = each.wakes_in_ == nullptr ? nullptr : each.wakes_in_(each);
            if (each.wakes_in_ == nullptr) {
                insert(each);
                continue;
            }
            if (home != nullptr && left_behind::keeps(*home)) continue;  // nobody waits any more
            dispatcher* best = nullptr;
            int most = 0;
            for (dispatcher* one : all) {
                stream& candidate = one->of();
                if (candidate.loop().timers().closed_) continue;
                const int fit =
                    home == nullptr ? !candidate.options().driven : fitness(candidate, *home);
                if (fit > most) {
                    most = fit;
                    best = one;
                }
            }
            move(each, best);
        }
        note_earliest();
    });
}

void timer_heap::move(timer& what, dispatcher* to) noexcept {
    timer_heap& target = to == nullptr ? homeless : to->of().loop().timers();
    if (&target == this) return insert(what);
    const dispatcher* const from = of_.load(std::memory_order_relaxed);
    const clock& old_clock = from == nullptr ? clock::steady() : from->of().loop().time();
    const clock& new_clock = to == nullptr ? clock::steady() : to->of().loop().time();
    if (&old_clock != &new_clock) what.when_ = moved(what.when_, old_clock.now(), new_clock.now());
    {
        const std::lock_guard hold(target.lock_);
        what.heap_.store(&target, std::memory_order_release);
        target.insert(what);
        target.note_earliest();
    }
    if (to != nullptr) target.rings_.load(std::memory_order_relaxed)->ring();
}

timer_heap& timer_heap::lock_that_of(timer& what) noexcept {
    for (;;) {
        timer_heap& heap = *what.heap_.load(std::memory_order_acquire);
        heap.lock_.lock();
        if (what.heap_.load(std::memory_order_relaxed) == &heap) return heap;
        heap.lock_.unlock();
    }
}

bool timer_heap::before(const timer& a, const timer& b) noexcept {
    return a.when_ != b.when_ ? a.when_ < b.when_ : a.order_ < b.order_;
}

timer* timer_heap::meld(timer* a, timer* b) noexcept {
    if (a == nullptr) return b;
    if (b == nullptr) return a;
    if (before(*b, *a)) std::swap(a, b);
    b->prev_ = a;
    b->next_ = a->child_;
    if (a->child_ != nullptr) a->child_->prev_ = b;
    a->child_ = b;
    return a;
}

// Pairs from left to right, then melds from right to left, which makes removal logarithmic. Loops,
// not recursion: a thousand timers may be siblings.
timer* timer_heap::meld_siblings(timer* first) noexcept {
    timer* pairs = nullptr;
    while (first != nullptr) {
        timer* const a = first;
        timer* const b = a->next_;
        first = b == nullptr ? nullptr : b->next_;
        a->next_ = a->prev_ = nullptr;
        if (b != nullptr) b->next_ = b->prev_ = nullptr;
        timer* const pair = meld(a, b);
        pair->next_ = pairs;
        pairs = pair;
    }
    timer* root = nullptr;
    while (pairs != nullptr) {
        timer* const rest = pairs->next_;
        pairs->next_ = nullptr;
        root = meld(root, pairs);
        pairs = rest;
    }
    return root;
}

void timer_heap::insert(timer& what) noexcept {
    what.child_ = what.next_ = what.prev_ = nullptr;
    what.order_ = next_order_++;
    what.armed_ = true;
    root_ = meld(root_, &what);
}

void timer_heap::take_out(timer& what) noexcept {
    if (&what == root_) {
        root_ = meld_siblings(what.child_);
    } else {
        (what.prev_->child_ == &what ? what.prev_->child_ : what.prev_->next_) = what.next_;
        if (what.next_ != nullptr) what.next_->prev_ = what.prev_;
        root_ = meld(root_, meld_siblings(what.child_));
    }
    what.armed_ = false;
}

void timer_heap::note_earliest() noexcept {
    const auto when = (root_ == nullptr ? time_point::max() : root_->when_).time_since_epoch();
    // Only this lock's holder stores. Most timers are armed behind others, and go before their
    // time.
    if (earliest_.load(std::memory_order_relaxed) == when.count()) return;
    // seq_cst: half of the protocol with a stream that goes to sleep, see bell.hpp.
    earliest_.store(when.count(), std::memory_order_seq_cst);
}

// In order of time, linked by next_; none remains armed.
timer* timer_heap::take_all() noexcept {
    timer* first = nullptr;
    timer** end = &first;
    while (root_ != nullptr) {
        timer& each = *root_;
        take_out(each);
        each.next_ = nullptr;
        *end = &each;
        end = &each.next_;
    }
    return first;
}

void timer_heap::arm(timer& what, time_point when) noexcept {
    timer_heap& heap = lock_that_of(what);
    if (what.armed_) heap.take_out(what);
    what.when_ = when;
    heap.insert(what);
    heap.note_earliest();
    const bool is_first = heap.root_ == &what;
    const bool must_move = heap.closed_ && what.wakes_in_ != nullptr;
    heap.lock_.unlock();
    // `what` may be gone by now.
    if (must_move) return heap.move_waits();
    if (!is_first || dispatcher::current() == heap.of_.load(std::memory_order_relaxed)) return;
    bell* const rings = heap.rings_.load(std::memory_order_relaxed);
    if (rings != nullptr) rings->ring();
}

bool timer_heap::cancel(timer& what) noexcept {
    timer_heap& heap = lock_that_of(what);
    if (what.armed_) {
        heap.take_out(what);
        heap.note_earliest();
        heap.lock_.unlock();
        return true;
    }
    heap.lock_.unlock();
    if (dispatcher::current() != heap.of_.load(std::memory_order_relaxed)) {
        while (heap.firing_.load(std::memory_order_acquire) == &what)
            std::this_thread::yield();
    }
    return false;
}

std::size_t timer_heap::fire(time_point now) noexcept {
    std::size_t fired = 0;
    lock_.lock();
    const std::uint64_t later = next_order_;  // timers armed by callbacks wait for the next call
    while (root_ != nullptr && root_->when_ <= now && root_->order_ < later) {
        timer& due = *root_;
        take_out(due);
        note_earliest();
        // release: who waited for the one before sees here, too, that its callback has ended.
        firing_.store(&due, std::memory_order_release);
        lock_.unlock();
        due.call_(due);
        dispatcher::stay_in_parent();
        lock_.lock();
        firing_.store(nullptr, std::memory_order_release);
        ++fired;
    }
    lock_.unlock();
    return fired;
}

sleep_operation::sleep_operation(execution_stream& where, time_point until) noexcept
    : timer(
          where,
          [](timer& self) noexcept { static_cast<sleep_operation&>(self).unit_.make_ready(); },
          [](const timer& self) noexcept {
              return static_cast<const sleep_operation&>(self).unit_.home();
          }),
      where_(where),
      until_(until) {}

void sleep_operation::await_suspend(std::coroutine_handle<> who) noexcept {
    unit_.prepare_in(where_.main_pool(), who);
    arm(until_);  // may have resumed by now
}

}  // namespace detail

}  // namespace amalgam
