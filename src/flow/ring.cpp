#include <algorithm>
#include <bit>

#include <amalgam/core/status.hpp>
#include <amalgam/flow/detail/ring.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {
namespace {

// How often an end lets others run before it parks, when the other end runs on another stream:
// a park and the wake-up across streams cost some twenty times as much as a yield.
constexpr int yields_before_park = 64;

[[noreturn]] void throw_stopped() {
    throw error(errc::canceled, "the run is being stopped: send no more, and return");
}

}  // namespace

ring_core::ring_core(std::size_t capacity, bool across_streams)
    : capacity_(std::bit_ceil(std::max<std::size_t>(capacity, 2))),
      mask_(capacity_ - 1),
      portion_mask_(std::max<std::size_t>(capacity_ / 8, 1) - 1),
      across_streams_(across_streams) {}

void ring_core::wake(std::atomic<waiter*>& who) noexcept {
    // Whoever takes the pointer owes its owner exactly one unpark().
    if (waiter* waiting = who.exchange(nullptr)) waiting->unpark();
}

void ring_core::close() noexcept {
    closed_.store(true);
    wake(consumer_waits_);
}

void ring_core::stop() noexcept {
    stopped_.store(true);
    wake(consumer_waits_);
    wake(producer_waits_);
}

void ring_core::give_room_back() noexcept {
    head_.store(popped_, std::memory_order_seq_cst);  // As in finish_push().
    if (producer_waits_.load(std::memory_order_seq_cst) == nullptr) return;
    // A producer that waits is woken for half a queue of work, not for each portion: this end
    // comes by here again before it waits itself.
    if (tail_.load(std::memory_order_relaxed) - popped_ <= capacity_ / 2) wake(producer_waits_);
}

void ring_core::wait_for_room() {
    auto full = [this] {
        head_seen_ = head_.load(std::memory_order_seq_cst);
        return pushed_ - head_seen_ == capacity_;
    };
    for (;;) {
        if (stopped_.load()) throw_stopped();
        if (!full()) return;
        waiter me;
        me.waits_for("room in a flow queue");
        producer_waits_.store(&me);
        // Looked at again after the pointer is out; taken back if there is no need to wait.
        bool wait = full() && !stopped_.load();
        if (wait || producer_waits_.exchange(nullptr) == nullptr) me.park();
    }
}

bool ring_core::wait_for_item() {
    auto empty = [this] {
        tail_seen_ = tail_.load(std::memory_order_seq_cst);
        return popped_ == tail_seen_;
    };
    if (!empty() && !is_stopped()) return true;
    give_room_back();
    if (across_streams_) {
        for (int i = 0; i < yields_before_park; ++i) {
            if (!empty()) break;
            this_task::yield();
        }
    }
    for (;;) {
        if (stopped_.load()) throw_stopped();
        bool closed = closed_.load();  // Before the last look: what was pushed comes first.
        if (!empty()) return true;
        if (closed) return false;
        waiter me;
        me.waits_for("item of a flow queue");
        consumer_waits_.store(&me);
        bool wait = empty() && !closed_.load() && !stopped_.load();
        if (wait || consumer_waits_.exchange(nullptr) == nullptr) me.park();
    }
}

}  // namespace amalgam::detail
