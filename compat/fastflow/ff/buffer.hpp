#pragma once

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>

#include <ff/config.hpp>

namespace amalgam {
class waiter;
}

namespace ff {
namespace detail {

/// Where one thread sleeps until another has done something it waits for.
///
/// Threads: one sleeps at a time; any may ring.
/// Cost:    ring() without a sleeper is one load, of a cache line that nothing else writes to.
class alignas(64) bell {
public:
    /// Sleeps until `ready` is true. It is asked again after each ring; with `only`, after each
    /// ring by that, or by nobody in particular.
    template <typename Ready>
    void sleep_until(Ready ready, const void* only = nullptr) {
        if (spin(ready)) return;
        only_.store(only, std::memory_order_relaxed);
        sleep(&call<Ready>, &ready, false);
    }
    /// The same, but gives up after a moment, for nodes that look for work themselves.
    template <typename Ready>
    void nap_until(Ready ready) {
        only_.store(nullptr, std::memory_order_relaxed);
        sleep(&call<Ready>, &ready, true);
    }
    /// True, so that it can be the last call of a push.
    bool ring(const void* by = nullptr) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return sleeper_.load(std::memory_order_seq_cst) == nullptr || wake(by);
    }
    /// What was stored before a ring needs no order with it: who falls asleep pays for that.
    static bool light();

private:
    template <typename Ready>
    static bool call(void* ready) {
        return (*static_cast<Ready*>(ready))();
    }
    template <typename Ready>
    static bool spin(Ready& ready) {
        for (int attempt = 0; attempt != looks; ++attempt) {
            if (ready()) return true;
            relax();
        }
        return false;
    }
    static constexpr int looks = 64;
    static void relax();
    void sleep(bool (*ready)(void*), void* what, bool briefly);
    bool wake(const void* by);

    std::atomic<amalgam::waiter*> sleeper_{nullptr};
    std::atomic<const void*> only_{nullptr};  // set before it sleeps: whose rings it waits for
};

/// The other end of a queue whose nodes are in different processes.
class far_end {
public:
    /// Sends an item, or a mark, to the node of another process. Throws run_lost.
    virtual void send(void* item) = 0;
    /// Makes an item of what has come; marks stay as they are. Throws run_lost.
    virtual void* receive(void* came) = 0;
    /// Nobody will take what has come.
    virtual void drop(void* came) noexcept = 0;
    /// The node that read from the queue has ended.
    virtual void closed() noexcept = 0;
    /// Sends what waits for more.
    virtual void flush() = 0;
    /// Its group has ended and left the stream open, and the node waits for nothing else. Throws
    /// run_lost.
    virtual void deserted() = 0;

protected:
    ~far_end() = default;
};

/// The queue from one node to another: pointers, in order, from one thread to one thread. Grows as
/// it must unless it is given a fixed size.
///
/// Owner:   shared by the two nodes; items belong to the program.
/// Threads: one pushes, one pops; close(), wake and sizes from any.
/// Failure: a null pointer is refused. Without memory a push throws std::bad_alloc, and has pushed
///          nothing; an end of stream takes what is kept for it, and arrives.
/// Cost:    a push is a plain store; memory comes 512 items at a time, and is reused; as much is
///          kept for ends. Falling asleep is a system call more than waiting itself.
class channel {
public:
    explicit channel(std::size_t entries = DEFAULT_BUFFER_CAPACITY, bool fixed = FF_FIXED_SIZE);
    ~channel();
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;

    /// False: full. After close() items are dropped: nobody would take them.
    bool try_push(void* item) { return simple() ? push_simple(item) : try_push_checked(item); }
    /// Sleeps while it is full.
    void push(void* item) {
        if (simple())
            push_simple(item);
        else
            push_checked(item);
    }
    /// As the end of a stream, which needs no memory. There must be room.
    void push_surely(void* item);
    /// Throws std::bad_alloc, or what is pushed surely next needs no memory.
    void prepare_surely();
    /// It has no limit, and its consumer is here and takes part.
    bool simple() const { return simple_.load(std::memory_order_relaxed); }
    /// True. Of a queue that was simple() just now.
    ///
    /// What is seldom is a call at the end, so that the rest needs no stack.
    /// `surely`: as the end of a stream, for which such a queue is prepared.
    bool push_simple(void* item, bool surely = false) {
        const std::size_t at = pushed_.load(std::memory_order_relaxed);
        if (at % block_size == block_size - 1) return push_last(item, surely);
        pushed_.store(at + 1, std::memory_order_relaxed);
        tail_->slots[at % block_size].store(item, std::memory_order_release);
        return consumer_->ring(this);
    }
    void wait_room();
    /// The consumer sleeps until there is an item.
    void wait_item();
    bool try_pop(void** item) {
        const std::size_t at = popped_.load(std::memory_order_relaxed);
        std::atomic<void*>& slot = head_->slots[at % block_size];
        void* const found = slot.load(std::memory_order_acquire);
        if (found == nullptr) return false;
        slot.store(nullptr, std::memory_order_relaxed);
        popped_.store(at + 1, std::memory_order_relaxed);
        if (at % block_size == block_size - 1) leave_block();
        const bool plain = limit_.load(std::memory_order_relaxed) == unlimited;
        *item = plain ? found : popped_of_limited(found);
        return true;
    }
    bool empty() const {
        const std::size_t at = popped_.load(std::memory_order_relaxed) % block_size;
        return head_->slots[at].load(std::memory_order_seq_cst) == nullptr;
    }
    bool full() const {
        return limit_.load(std::memory_order_relaxed) != unlimited &&
               pushed_.load(std::memory_order_relaxed) - popped_.load(std::memory_order_seq_cst) >=
                   limit_.load(std::memory_order_relaxed) &&
               state_.load(std::memory_order_relaxed) != state::closed;
    }
    /// The consumer is gone.
    void close();
    void reopen();
    /// From now on, pushes go to `there`, at most `window` that were not credited. Before use.
    void send_to(far_end& there, std::size_t window);
    /// From now on, what is pushed are bytes from `there`, and never too many. Before use.
    void receive_from(far_end& there);
    /// `items` were taken at the other end. From one thread.
    void credit(std::size_t items);
    void flush() {
        if (sends_ && far_ != nullptr) far_->flush();
    }
    void deserted() {
        if (far_ != nullptr) far_->deserted();
    }
    /// Gives what was not taken to far_end::drop(). When nobody uses it.
    void drop_rest();
    /// Drops what was not taken, if both ends are in this process. The consumer's.
    void discard();
    /// Items popped so far. The consumer's.
    std::size_t taken() const { return popped_.load(std::memory_order_relaxed); }
    /// Items pushed so far. The producer's.
    std::size_t sent() const { return pushed_.load(std::memory_order_relaxed); }
    /// Whom a push wakes, and whom a pop of a queue with a fixed size wakes. Set before use.
    void wakes(bell* consumer, bell* producer) {
        consumer_ = consumer != nullptr ? consumer : &own_consumer_;
        producer_ = producer != nullptr ? producer : &own_producer_;
    }

    // FastFlow's names.
    bool init() { return true; }
    bool pop(void** item) { return try_pop(item); }
    bool push_nb(void* item) { return try_push(item); }
    std::size_t length() const {
        return pushed_.load(std::memory_order_relaxed) - popped_.load(std::memory_order_relaxed);
    }
    /// Items that it takes until somebody reads. All bits set: any number.
    std::size_t buffersize() const {
        return isFixedSize() ? limit_.load(std::memory_order_relaxed)
                             : static_cast<std::size_t>(-1);
    }
    /// The same, or what it was made with.
    std::size_t capacity() const { return isFixedSize() ? buffersize() : entries_; }
    /// Fixes the size from now on; returns the former one.
    std::size_t changesize(std::size_t entries);
    bool isFixedSize() const { return limit_.load(std::memory_order_relaxed) < received; }
    void reset() {}

private:
    static constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
    static constexpr std::size_t received = unlimited - 1;  ///< Credits limit it.
    static constexpr std::size_t block_size = 512;
    enum class state : unsigned char { open, closed, sends };
    struct block {
        std::atomic<void*> slots[block_size];
        block* next;
    };

    bool push_last(void* item, bool surely);
    void put(void* item, bool surely);
    bool try_push_checked(void* item);
    void push_checked(void* item);
    void put_elsewhere(void* item);
    void* popped_of_limited(void* item);
    block* add_block(bool surely);
    block* new_or_reserve();
    void leave_block();
    void check_simple();

    // The producer's.
    alignas(64) block* tail_;
    std::atomic<block*> reserve_{nullptr};  // For what is pushed surely. Others see if it is there.
    std::atomic<std::size_t> pushed_{0};    // Also says which slot of the block is next.
    bell* consumer_ = &own_consumer_;
    std::size_t next_used_ = 0;
    // The consumer's.
    alignas(64) block* head_;
    std::atomic<std::size_t> popped_{0};  // Of a queue that is read here, as above.
    std::size_t next_spare_ = 0;
    bell* producer_ = &own_producer_;
    // Of both.
    alignas(64) std::atomic<std::size_t> limit_;
    std::atomic<state> state_{state::open};
    std::atomic<bool> simple_{false};  // open, no limit, both ends are here, light_, reserve_
    const bool light_ = bell::light();
    bool sends_ = false;
    std::size_t entries_;
    far_end* far_ = nullptr;
    // From the consumer back to the producer.
    alignas(64) std::atomic<block*> spare_[16] = {};
    bell own_consumer_;
    bell own_producer_;
};

}  // namespace detail

using FFBUFFER = detail::channel;

}  // namespace ff
