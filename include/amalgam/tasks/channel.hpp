#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/tasks/detail/channel_core.hpp>
#include <amalgam/tasks/detail/channel_operations.hpp>
#include <amalgam/tasks/extension/deadline.hpp>

namespace amalgam {

/// A bounded queue between any number of ULTs, plain threads and coroutines at either end. Items
/// come out in the order they went in. Waiters are served in order of arrival; an item goes
/// directly to a waiting popper.
///
///     channel<job> jobs(64);
///     ult worker = spawn(stream, [&] { for (job& each : jobs) each.run(); });
///     jobs.push(job{1});
///     jobs.close();  // the loop ends once the channel is drained
///
/// Owner:   owns the items in it. May be destroyed once nobody else will call it, even if an
///          earlier push(), pop() or close() has not returned: whoever got the last item, or
///          learned that the channel is closed and drained, may destroy it.
/// Threads: any. Tasklets may use what does not wait: try_push(), try_pop(), close().
/// Failure: push() into a closed channel throws error{closed}. Having to wait inside a tasklet,
///          timer callback or poller throws error{invalid}, as does a capacity of 0; a capacity
///          that memory cannot hold throws error{no_memory}.
///          If moving an item throws, its pusher gets the exception, or its popper, and then the
///          item stays in the channel. Otherwise it is as if the call had not happened.
/// Cost:    no allocation after construction. Without waiting, a push or pop is a short lock and
///          one move under it; that move must not wait or use the channel.
template <typename T>
class channel {
    using core = detail::channel_core<T>;
    using step = typename core::step;
    static_assert(std::is_object_v<T> && std::is_move_constructible_v<T>);

public:
    using time_point = std::chrono::steady_clock::time_point;  ///< Of deadlines.

    explicit channel(std::size_t capacity) : core_(capacity) {}

    /// Waits for room.
    void push(T&& item) { push_until(std::move(item), time_point::max()); }
    void push(const T& item) { push(T(item)); }
    /// False: the deadline passed first; the item is unchanged. Uses the clock of the caller's
    /// stream.
    bool push_until(T&& item, time_point deadline) {
        if (core_.size() != capacity()) {
            const step now = core_.push(item, nullptr);
            if (now == step::done) return true;
            if (now == step::closed) detail::refuse_closed_channel();
        }
        return push_slow(item, deadline);
    }
    bool push_until(const T& item, time_point deadline) { return push_until(T(item), deadline); }
    template <typename Item, typename Rep, typename Period>
    bool push_for(Item&& item, std::chrono::duration<Rep, Period> time) {
        return push_until(std::forward<Item>(item), detail::deadline_after(time));
    }
    /// False: full or closed; the item is unchanged. Never waits.
    bool try_push(T&& item) { return core_.push(item, nullptr) == step::done; }
    bool try_push(const T& item) { return try_push(T(item)); }

    /// Waits for an item. Empty: the channel is closed and drained.
    std::optional<T> pop() { return pop_until(time_point::max()); }
    /// Empty: the channel is closed and drained, or the deadline passed first.
    std::optional<T> pop_until(time_point deadline) {
        std::optional<T> item;
        pop_into(item, deadline);
        return item;
    }
    template <typename Rep, typename Period>
    std::optional<T> pop_for(std::chrono::duration<Rep, Period> time) {
        return pop_until(detail::deadline_after(time));
    }
    /// Empty: the channel is empty now. Never waits.
    std::optional<T> try_pop() {
        std::optional<T> item;
        core_.pop(item, nullptr);
        return item;
    }

    /// For coroutines: `co_await c.start_push(item)` and `co_await c.start_pop()`, as push() and
    /// pop().
    auto start_push(T item) { return detail::channel_push<T>(core_, std::move(item)); }
    auto start_pop() noexcept { return detail::channel_pop<T>(core_); }

    /// Accepts no more items. Waiting pushers get error{closed}; poppers get the remaining items,
    /// then nothing. Idempotent.
    void close() noexcept { core_.close(); }
    bool closed() const noexcept { return core_.closed(); }

    /// Number of items; may be outdated if others push or pop.
    std::size_t size() const noexcept { return core_.size(); }
    std::size_t capacity() const noexcept { return core_.capacity(); }

    /// Single-pass iteration until the channel is closed and drained; each step is a pop().
    class iterator {
    public:
        using difference_type = std::ptrdiff_t;
        using value_type = T;

        explicit iterator(channel& from) : from_(&from) { ++*this; }
        T& operator*() const noexcept { return *item_; }
        T* operator->() const noexcept { return &*item_; }
        iterator& operator++() {
            item_.reset();
            from_->pop_into(item_, time_point::max());
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator& at, std::default_sentinel_t) noexcept {
            return !at.item_;
        }

    private:
        channel* from_;
        mutable std::optional<T> item_;
    };
    iterator begin() { return iterator(*this); }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    void pop_into(std::optional<T>& item, time_point deadline) {
        if (core_.size() != 0 && core_.pop(item, nullptr) == step::done) return;
        pop_slow(item, deadline);
    }
    // Separate, so that the paths above stay small enough to inline.
    [[gnu::noinline]] bool push_slow(T& item, time_point deadline) {
        typename core::node me;
        me.item = &item;
        const step now = core_.push(item, &me);
        if (now == step::done) return true;
        if (now == step::closed) detail::refuse_closed_channel();
        if (!core_.wait_until(me, deadline)) return false;
        core::check_pushed(me);
        return true;
    }
    [[gnu::noinline]] void pop_slow(std::optional<T>& item, time_point deadline) {
        typename core::node me;
        me.place = &item;
        if (core_.pop(item, &me) == step::must_wait) core_.wait_until(me, deadline);
    }

    core core_;
};

}  // namespace amalgam
