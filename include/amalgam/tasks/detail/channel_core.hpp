#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <amalgam/tasks/detail/wait_list.hpp>

namespace amalgam::detail {

[[noreturn]] void refuse_capacity();                                       // throws error{invalid}
[[noreturn]] void refuse_room(std::size_t items, std::size_t bytes_each);  // error{no_memory}
[[noreturn]] void refuse_closed_channel();                                 // throws error{closed}

/// The inside of a channel: a ring and its waiters, under one lock.
///
/// Pushers wait only while the ring is full, poppers only while it is empty, and the capacity is at
/// least one. So one list serves both, and newcomers cannot overtake waiters.
template <typename T>
class channel_core {
public:
    enum class step : unsigned char { done, must_wait, closed };

    struct node : wait_node {
        using wait_node::wait_node;
        T* item = nullptr;                  ///< Of a pusher; moved from once served.
        std::optional<T>* place = nullptr;  ///< Of a popper.
        bool served = false;                ///< False: the channel was closed, or the move failed.
        std::exception_ptr failed{};        ///< Exception from moving a pusher's item.
    };

    explicit channel_core(std::size_t capacity) : capacity_(capacity) {
        if (capacity == 0) refuse_capacity();
        try {
            ring_ = std::make_unique_for_overwrite<slot[]>(capacity);
        } catch (const std::bad_alloc&) {
            refuse_room(capacity, sizeof(slot));
        }
    }
    ~channel_core() {
        while (size() != 0)
            drop_first();
    }
    channel_core(const channel_core&) = delete;
    channel_core& operator=(const channel_core&) = delete;

    /// must_wait: full; `me`, if given, is listed.
    step push(T& item, node* me) {
        node* served = nullptr;
        {
            const std::lock_guard hold(waiting_);
            if (closed_) return step::closed;
            if (size() == capacity_) {
                if (me != nullptr) waiting_.push(*me);
                return step::must_wait;
            }
            if (waiting_.empty()) {
                append(item);
            } else {
                served = static_cast<node*>(waiting_.front());
                served->place->emplace(std::move(item));  // throws: it keeps waiting
                served->served = true;
                waiting_.pop();
            }
        }
        if (served != nullptr) served->who.unpark();
        return step::done;
    }

    /// must_wait: empty; `me`, if given, is listed.
    step pop(std::optional<T>& into, node* me) {
        wait_node* served = nullptr;
        {
            const std::lock_guard hold(waiting_);
            if (size() == 0) {
                if (closed_) return step::closed;
                if (me != nullptr) waiting_.push(*me);
                return step::must_wait;
            }
            into.emplace(std::move(*ring_[first_].item()));  // throws: it stays first
            drop_first();
            if (!waiting_.empty()) served = refill();
        }
        if (served != nullptr) wait_list::unpark_all(served);
        return step::done;
    }

    /// Parks the owner of a listed node. False: the deadline passed first.
    bool wait_until(node& me, waiter::time_point deadline) {
        return waiting_.wait_cancelable_until(me, deadline, "channel");
    }
    /// For a pusher whose node is off the list: throws if its item is not in the channel.
    static void check_pushed(const node& me) {
        if (me.failed) std::rethrow_exception(me.failed);
        if (!me.served) refuse_closed_channel();
    }

    void close() noexcept {
        wait_node* all = nullptr;
        {
            const std::lock_guard hold(waiting_);
            closed_ = true;
            all = waiting_.take_all();
        }
        wait_list::unpark_all(all);
    }
    bool closed() const noexcept {
        const std::lock_guard hold(waiting_);
        return closed_;
    }
    /// May be outdated unless the lock is held.
    std::size_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
    std::size_t capacity() const noexcept { return capacity_; }

private:
    struct slot {
        T* item() noexcept { return std::launder(reinterpret_cast<T*>(bytes)); }
        alignas(T) std::byte bytes[sizeof(T)];
    };

    void set_size(std::size_t to) noexcept { size_.store(to, std::memory_order_relaxed); }
    void append(T& item) {
        ::new (static_cast<void*>(ring_[end_].bytes)) T(std::move(item));
        if (++end_ == capacity_) end_ = 0;
        set_size(size() + 1);
    }
    void drop_first() noexcept {
        std::destroy_at(ring_[first_].item());
        if (++first_ == capacity_) first_ = 0;
        set_size(size() - 1);
    }
    // Lets waiting pushers in; returns those that were served or whose items cannot be moved.
    [[gnu::noinline]] wait_node* refill() noexcept {
        return waiting_.take_while([this](wait_node& who) {
            if (size() == capacity_) return false;
            auto& first = static_cast<node&>(who);
            try {
                append(*first.item);
                first.served = true;
            } catch (...) {
                first.failed = std::current_exception();
            }
            return true;
        });
    }

    mutable wait_list waiting_;
    bool closed_ = false;
    std::size_t capacity_;
    std::atomic<std::size_t> size_{0};  // changed under the lock
    std::size_t first_ = 0;
    std::size_t end_ = 0;
    std::unique_ptr<slot[]> ring_;
};

}  // namespace amalgam::detail
