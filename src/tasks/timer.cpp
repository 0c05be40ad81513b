#include <mutex>
#include <thread>

#include <amalgam/tasks/timer.hpp>

#include "tasks/stream.hpp"
#include "tasks/timer_heap.hpp"

namespace amalgam {

void timer::arm(time_point when) noexcept {
    // Read first: once it is armed, the callback may have ended this.
    detail::stream* const where = where_;
    if (where->timers().arm(*this, when) && detail::stream::current() != where) where->ring();
}

bool timer::cancel() noexcept {
    return where_->timers().cancel(*this, detail::stream::current() != where_);
}

namespace detail {

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

// Left to right in pairs, then right to left: what makes removal logarithmic. A loop
// each, not recursion: a thousand timers may hang under one.
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
    const time_point when = root_ == nullptr ? time_point::max() : root_->when_;
    // seq_cst: half of the handshake with a stream that goes to sleep, see bell.hpp.
    earliest_.store(when.time_since_epoch().count(), std::memory_order_seq_cst);
}

bool timer_heap::arm(timer& what, time_point when) noexcept {
    const std::lock_guard hold(lock_);
    if (what.armed_) take_out(what);
    what.when_ = when;
    insert(what);
    note_earliest();
    return root_ == &what;
}

bool timer_heap::cancel(timer& what, bool wait) noexcept {
    {
        const std::lock_guard hold(lock_);
        if (what.armed_) {
            take_out(what);
            note_earliest();
            return true;
        }
    }
    while (wait && firing_.load(std::memory_order_acquire) == &what)
        std::this_thread::yield();
    return false;
}

std::size_t timer_heap::fire(time_point now) noexcept {
    std::size_t fired = 0;
    lock_.lock();
    const std::uint64_t later = next_order_;  // what callbacks arm waits for the next call
    while (root_ != nullptr && root_->when_ <= now && root_->order_ < later) {
        timer& due = *root_;
        take_out(due);
        note_earliest();
        firing_.store(&due, std::memory_order_relaxed);
        lock_.unlock();
        due.call_(due);
        lock_.lock();
        firing_.store(nullptr, std::memory_order_release);
        ++fired;
    }
    lock_.unlock();
    return fired;
}

}  // namespace detail

}  // namespace amalgam
