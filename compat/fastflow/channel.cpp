#include <chrono>
#include <memory>
#include <new>

#include <ff/buffer.hpp>
#include <sched.h>

#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/extension/thread_barrier.hpp>
#include <amalgam/tasks/parking.hpp>

#include "inlet.hpp"

namespace ff::detail {

void bell::relax() {
    amalgam::detail::cpu_relax();
}

bool bell::light() {
    static const bool can = amalgam::detail::barrier_on_all_threads();
    return can;
}

void bell::sleep(bool (*ready)(void*), void* what, bool briefly) {
    using clock = std::chrono::steady_clock;
    constexpr auto nap = std::chrono::microseconds(200);
    constexpr auto first = std::chrono::milliseconds(1);
    amalgam::waiter me;
    bool in_vain = false;
    for (;;) {
        // Each side writes its own word first, then reads the other's. Whoever rings orders neither
        // (an exchange for each item would cost more than the rest of a push), so it may miss this
        // store, and this thread its item. That is a matter of a moment: hence the further looks.
        // Before a thread sleeps for long, the kernel orders both sides.
        sleeper_.store(&me, std::memory_order_seq_cst);
        const bool ordered = !light() || (in_vain && amalgam::detail::barrier_on_all_threads());
        for (int look = 0; !ordered && look != looks / 2 && !ready(what); ++look)
            relax();
        bool rung = false;
        if (!ready(what)) {
            if (ordered && !briefly) {
                me.park();
                rung = true;
            } else {
                rung = me.park_until(clock::now() + (briefly ? nap : first));
            }
        }
        if (!rung) {
            // Who took the waiter away will unpark it, and must have before it ends.
            amalgam::waiter* mine = &me;
            if (!sleeper_.compare_exchange_strong(mine, nullptr)) me.park();
        }
        if (briefly || ready(what)) return;
        in_vain = !rung;
    }
}

bool bell::wake(const void* by) {
    const void* const only = only_.load(std::memory_order_relaxed);
    if (only != nullptr && by != nullptr && by != only) return true;
    if (amalgam::waiter* sleeper = sleeper_.exchange(nullptr, std::memory_order_seq_cst))
        sleeper->unpark();
    return true;
}

channel::channel(std::size_t entries, bool fixed)
    : tail_(new block{}), head_(tail_), limit_(fixed ? entries : unlimited), entries_(entries) {
    reserve_ = new (std::nothrow) block{};  // Without one, put() tries again.
    check_simple();
}

channel::~channel() {
    while (head_ != tail_) {
        const std::unique_ptr<block> old(head_);
        head_ = old->next;
    }
    delete tail_;
    delete reserve_.load(std::memory_order_relaxed);
    for (auto& each : spare_)
        delete each.load(std::memory_order_relaxed);
}

void channel::check_simple() {
    simple_.store(light_ && limit_.load(std::memory_order_relaxed) == unlimited &&
                      state_.load(std::memory_order_relaxed) == state::open &&
                      reserve_.load(std::memory_order_relaxed) != nullptr,
                  std::memory_order_relaxed);
}

void channel::reopen() {
    state_.store(sends_ ? state::sends : state::open, std::memory_order_relaxed);
    check_simple();
}

/// The last slot of a block is filled when the next block is there.
bool channel::push_last(void* item, bool surely) {
    const std::size_t at = pushed_.load(std::memory_order_relaxed);
    block* const full = add_block(surely || is_end(item));
    pushed_.store(at + 1, std::memory_order_relaxed);
    full->slots[block_size - 1].store(item, std::memory_order_release);
    return consumer_->ring(this);
}

/// To any queue that is read here. `surely`: it may take the reserve, which is made anew for the
/// next item that may not.
void channel::put(void* item, bool surely) {
    if (reserve_.load(std::memory_order_relaxed) == nullptr)
        reserve_.store(surely ? new (std::nothrow) block{} : new block{},
                       std::memory_order_relaxed);
    const std::size_t at = pushed_.load(std::memory_order_relaxed);
    std::atomic<void*>& slot = tail_->slots[at % block_size];
    if (at % block_size == block_size - 1) add_block(surely);
    pushed_.store(at + 1, std::memory_order_relaxed);
    if (light_)
        slot.store(item, std::memory_order_release);
    else
        slot.store(item, std::memory_order_seq_cst);
    consumer_->ring(this);
}

/// Returns the former one.
channel::block* channel::add_block(bool surely) {
    std::atomic<block*>& spare = spare_[next_used_];
    block* next = spare.load(std::memory_order_acquire);
    if (next != nullptr) {
        spare.store(nullptr, std::memory_order_release);
        next_used_ = (next_used_ + 1) % std::size(spare_);
    } else {
        next = surely ? new_or_reserve() : new block{};
    }
    block* const former = tail_;
    former->next = next;
    tail_ = next;
    return former;
}

/// Once the reserve is gone, pushes go by put().
channel::block* channel::new_or_reserve() {
    if (block* const made = new (std::nothrow) block{}) return made;
    simple_.store(false, std::memory_order_relaxed);
    block* const kept = reserve_.exchange(nullptr, std::memory_order_relaxed);
    if (kept == nullptr) throw std::bad_alloc();
    return kept;
}

void channel::leave_block() {
    block* const old = head_;
    head_ = old->next;
    std::atomic<block*>& spare = spare_[next_spare_];
    if (spare.load(std::memory_order_acquire) != nullptr) {
        delete old;
    } else {
        spare.store(old, std::memory_order_release);
        next_spare_ = (next_spare_ + 1) % std::size(spare_);
    }
}

bool channel::try_push_checked(void* item) {
    if (full()) return false;
    if (state_.load(std::memory_order_relaxed) == state::open)
        put(item, is_end(item));
    else
        put_elsewhere(item);
    return true;
}

void channel::push_surely(void* item) {
    if (state_.load(std::memory_order_relaxed) == state::open)
        put(item, true);
    else
        put_elsewhere(item);
}

void channel::prepare_surely() {
    if (state_.load(std::memory_order_relaxed) == state::open &&
        reserve_.load(std::memory_order_relaxed) == nullptr)
        reserve_.store(new block{}, std::memory_order_relaxed);
}

void channel::push_checked(void* item) {
    while (!try_push_checked(item))
        wait_room();
}

void channel::put_elsewhere(void* item) {
    if (far_ == nullptr) return;
    if (!sends_) return far_->drop(item);
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    far_->send(item);
}

void channel::send_to(far_end& there, std::size_t window) {
    far_ = &there;
    sends_ = true;
    const std::size_t limit = limit_.load(std::memory_order_relaxed);
    limit_.store(limit < window ? limit : window, std::memory_order_relaxed);
    reopen();
}

void channel::receive_from(far_end& there) {
    far_ = &there;
    limit_.store(received, std::memory_order_relaxed);
    check_simple();
}

void channel::credit(std::size_t items) {
    popped_.store(popped_.load(std::memory_order_relaxed) + items, std::memory_order_seq_cst);
    producer_->ring();
}

void channel::drop_rest() {
    far_end* const there = far_;
    far_ = nullptr;
    limit_.store(unlimited, std::memory_order_relaxed);
    check_simple();
    void* item = nullptr;
    while (!sends_ && there != nullptr && try_pop(&item))
        there->drop(item);
}

void channel::discard() {
    void* item = nullptr;
    while (far_ == nullptr && try_pop(&item))
        continue;
}

void channel::wait_room() {
    producer_->sleep_until([this] { return !full(); });
}

void channel::wait_item() {
    consumer_->sleep_until([this] { return !empty(); });
}

void* channel::popped_of_limited(void* item) {
    if (far_ != nullptr) return far_->receive(item);
    if (!light_)  // As in put().
        popped_.store(popped_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    producer_->ring();
    return item;
}

void channel::close() {
    state_.store(state::closed, std::memory_order_relaxed);
    check_simple();
    producer_->ring();
    if (far_ != nullptr && !sends_) far_->closed();
}

std::size_t channel::changesize(std::size_t entries) {
    const std::size_t former = capacity();
    if (far_ != nullptr) return former;  // The window is what both ends agreed on.
    limit_.store(entries, std::memory_order_relaxed);
    check_simple();
    entries_ = entries;
    producer_->ring();
    return former;
}

}  // namespace ff::detail
