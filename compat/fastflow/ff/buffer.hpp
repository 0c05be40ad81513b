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
/// Cost:    ring() without a sleeper is one load.
class bell {
public:
    /// Sleeps until `ready` is true. It is asked again after each ring.
    template <typename Ready>
    void sleep_until(Ready ready) {
        if (spin(ready)) return;
        sleep(&call<Ready>, &ready, false);
    }
    /// The same, but gives up after a moment, for nodes that look for work themselves.
    template <typename Ready>
    void nap_until(Ready ready) {
        sleep(&call<Ready>, &ready, true);
    }
    void ring() {
        if (sleeper_.load(std::memory_order_seq_cst) != nullptr) wake();
    }

private:
    template <typename Ready>
    static bool call(void* ready) {
        return (*static_cast<Ready*>(ready))();
    }
    template <typename Ready>
    static bool spin(Ready& ready) {
        for (int attempt = 0; attempt != 64; ++attempt) {
            if (ready()) return true;
            relax();
        }
        return false;
    }
    static void relax();
    void sleep(bool (*ready)(void*), void* what, bool briefly);
    void wake();

    std::atomic<amalgam::waiter*> sleeper_{nullptr};
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
/// Failure: a null pointer is refused.
/// Cost:    a push is one exchange on the item's slot; memory comes 512 items at a time, and is
///          reused.
class channel {
public:
    explicit channel(std::size_t entries = DEFAULT_BUFFER_CAPACITY, bool fixed = FF_FIXED_SIZE);
    ~channel();
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;

    /// False: full. After close() items are dropped: nobody would take them.
    bool try_push(void* item) {
        if (full()) return false;
        put(item);
        return true;
    }
    /// Sleeps while it is full.
    void push(void* item);
    void wait_room();
    /// The consumer sleeps until there is an item.
    void wait_item();
    bool try_pop(void** item);
    bool empty() const { return head_->slots[head_at_].load(std::memory_order_seq_cst) == nullptr; }
    bool full() const {
        return limit_.load(std::memory_order_relaxed) != unlimited &&
               pushed_.load(std::memory_order_relaxed) - popped_.load(std::memory_order_seq_cst) >=
                   limit_.load(std::memory_order_relaxed) &&
               state_.load(std::memory_order_relaxed) != state::closed;
    }
    /// The consumer is gone.
    void close();
    void reopen() { state_.store(sends_ ? state::sends : state::open, std::memory_order_relaxed); }
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
    std::size_t buffersize() const {
        const std::size_t limit = limit_.load(std::memory_order_relaxed);
        return limit >= received ? entries_ : limit;
    }
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

    void put(void* item);
    void put_elsewhere(void* item);
    bool take_received(void* came, void** item);
    block* new_block();

    // The producer's.
    alignas(64) block* tail_;
    std::size_t tail_at_ = 0;
    std::atomic<std::size_t> pushed_{0};
    bell* consumer_ = &own_consumer_;
    // The consumer's.
    alignas(64) block* head_;
    std::size_t head_at_ = 0;
    std::atomic<std::size_t> popped_{0};
    bell* producer_ = &own_producer_;
    // Of both.
    alignas(64) std::atomic<std::size_t> limit_;
    std::atomic<state> state_{state::open};
    bool sends_ = false;
    std::atomic<block*> spare_{nullptr};
    std::size_t entries_;
    far_end* far_ = nullptr;
    bell own_consumer_;
    bell own_producer_;
};

}  // namespace detail

using FFBUFFER = detail::channel;

}  // namespace ff
