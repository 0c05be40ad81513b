#include <chrono>
#include <memory>

#include <ff/buffer.hpp>

#include <amalgam/tasks/extension/cpu_relax.hpp>
#include <amalgam/tasks/parking.hpp>

namespace ff::detail {

void bell::relax() {
    amalgam::detail::cpu_relax();
}

void bell::sleep(bool (*ready)(void*), void* what, bool briefly) {
    amalgam::waiter me;
    for (;;) {
        // seq_cst here and in ring(): each side writes its own word first, then reads the other's.
        sleeper_.store(&me, std::memory_order_seq_cst);
        bool rung = false;
        if (!ready(what)) {
            if (briefly) {
                rung = me.park_until(std::chrono::steady_clock::now() +
                                     std::chrono::microseconds(200));
            } else {
                me.park();
                rung = true;
            }
        }
        if (!rung) {
            // Who took the waiter away will unpark it, and must have before it ends.
            amalgam::waiter* mine = &me;
            if (!sleeper_.compare_exchange_strong(mine, nullptr)) me.park();
            return;
        }
        if (briefly || ready(what)) return;
    }
}

void bell::wake() {
    if (amalgam::waiter* sleeper = sleeper_.exchange(nullptr, std::memory_order_seq_cst))
        sleeper->unpark();
}

channel::channel(std::size_t entries, bool fixed)
    : tail_(new block{}), head_(tail_), limit_(fixed ? entries : unlimited), entries_(entries) {}

channel::~channel() {
    while (head_ != tail_) {
        const std::unique_ptr<block> old(head_);
        head_ = old->next;
    }
    delete tail_;
    delete spare_.load(std::memory_order_relaxed);
}

channel::block* channel::new_block() {
    if (block* spare = spare_.exchange(nullptr, std::memory_order_acquire)) return spare;
    return new block{};
}

void channel::put(void* item) {
    if (state_.load(std::memory_order_relaxed) != state::open) return put_elsewhere(item);
    std::atomic<void*>& slot = tail_->slots[tail_at_];
    if (++tail_at_ == block_size) {
        block* next = new_block();
        tail_->next = next;
        tail_ = next;
        tail_at_ = 0;
    }
    pushed_.store(pushed_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    slot.store(item, std::memory_order_seq_cst);
    consumer_->ring();
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
}

bool channel::take_received(void* came, void** item) {
    *item = far_->receive(came);
    return true;
}

void channel::credit(std::size_t items) {
    popped_.store(popped_.load(std::memory_order_relaxed) + items, std::memory_order_seq_cst);
    producer_->ring();
}

void channel::drop_rest() {
    far_end* const there = far_;
    far_ = nullptr;
    limit_.store(unlimited, std::memory_order_relaxed);
    void* item = nullptr;
    while (!sends_ && there != nullptr && try_pop(&item))
        there->drop(item);
}

void channel::discard() {
    void* item = nullptr;
    while (far_ == nullptr && try_pop(&item))
        continue;
}

void channel::push(void* item) {
    while (!try_push(item))
        wait_room();
}

void channel::wait_room() {
    producer_->sleep_until([this] { return !full(); });
}

void channel::wait_item() {
    consumer_->sleep_until([this] { return !empty(); });
}

bool channel::try_pop(void** item) {
    std::atomic<void*>& slot = head_->slots[head_at_];
    void* const found = slot.load(std::memory_order_acquire);
    if (found == nullptr) return false;
    slot.store(nullptr, std::memory_order_relaxed);
    if (++head_at_ == block_size) {
        block* const old = head_;
        head_ = old->next;
        head_at_ = 0;
        delete spare_.exchange(old, std::memory_order_acq_rel);
    }
    const std::size_t popped = popped_.load(std::memory_order_relaxed) + 1;
    if (limit_.load(std::memory_order_relaxed) == unlimited) {
        popped_.store(popped, std::memory_order_relaxed);
    } else if (far_ != nullptr) {
        popped_.store(popped, std::memory_order_relaxed);
        return take_received(found, item);
    } else {
        popped_.store(popped, std::memory_order_seq_cst);
        producer_->ring();
    }
    *item = found;
    return true;
}

void channel::close() {
    state_.store(state::closed, std::memory_order_relaxed);
    producer_->ring();
    if (far_ != nullptr && !sends_) far_->closed();
}

std::size_t channel::changesize(std::size_t entries) {
    const std::size_t former = buffersize();
    if (far_ != nullptr) return former;  // The window is what both ends agreed on.
    limit_.store(entries, std::memory_order_relaxed);
    entries_ = entries;
    producer_->ring();
    return former;
}

}  // namespace ff::detail
