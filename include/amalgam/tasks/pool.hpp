#pragma once

#include <atomic>
#include <cstddef>

#include <amalgam/tasks/work_unit.hpp>

namespace amalgam {

/// Where ready work waits for a stream. A user may write one: derive, and call
/// notify() after each push that came from outside the serving stream.
///
/// Owner:   the user, or the stream for its own main_pool(). It must outlive the
///          stream that serves it and every ULT created into it.
/// Threads: push() from any thread; pop() only from the serving stream.
class pool {
public:
    pool() = default;
    pool(const pool&) = delete;
    pool& operator=(const pool&) = delete;
    virtual ~pool() = default;

    /// Adds a ready unit, from any thread. Never allocates.
    virtual void push(work_unit& unit) noexcept = 0;
    /// Takes the next unit, or null. Only the serving stream calls it.
    virtual work_unit* pop() noexcept = 0;
    /// No unit to pop. The stream asks this between saying that it will sleep and
    /// sleeping, so it must see every push whose notify() found the stream awake:
    /// read with seq_cst what push() writes with seq_cst.
    virtual bool empty() const noexcept = 0;
    /// How many units wait; exact only when nobody pushes or pops.
    virtual std::size_t size() const noexcept = 0;

    /// A stream that was not stopped serves it.
    bool served() const noexcept { return served_by_.load(std::memory_order_relaxed) != nullptr; }

protected:
    /// The calling thread is the stream that serves this pool.
    bool on_serving_stream() const noexcept;
    /// Wakes the serving stream when it is asleep. Call after the push is visible.
    /// Cost: one load when the stream is awake.
    void notify() noexcept;

private:
    friend class detail::stream;
    friend class fifo_pool;
    std::atomic<detail::stream*> served_by_{nullptr};
    std::atomic<detail::bell*> bell_{nullptr};  // of the serving stream; outlives it
};

/// First in, first out. Any thread pushes, one stream pops.
///
/// Cost: a push by the serving stream links two pointers; from elsewhere it is one
///       compare-and-swap, and an eventfd write only when the stream sleeps.
class fifo_pool final : public pool {
public:
    void push(work_unit& unit) noexcept override;
    work_unit* pop() noexcept override {
        // The inbox every time, or ULTs that yield to each other would keep all others out.
        if (inbox_.load(std::memory_order_relaxed) != nullptr) drain_inbox();
        work_unit* const first = head_;
        if (first != nullptr) {
            head_ = first->next_in_pool;
            add_own_size(-1);
        }
        return first;
    }
    bool empty() const noexcept override;
    std::size_t size() const noexcept override;

private:
    friend class detail::stream;

    void push_own(work_unit& unit) noexcept {
        unit.next_in_pool = nullptr;
        (head_ == nullptr ? head_ : tail_->next_in_pool) = &unit;
        tail_ = &unit;
        add_own_size(1);
    }
    void add_own_size(std::ptrdiff_t more) noexcept {
        own_size_.store(own_size_.load(std::memory_order_relaxed) + static_cast<std::size_t>(more),
                        std::memory_order_relaxed);
    }
    void drain_inbox() noexcept;

    // The serving stream's part.
    work_unit* head_ = nullptr;
    work_unit* tail_ = nullptr;
    std::atomic<std::size_t> own_size_{0};  // written by the serving stream only
    // Everybody else's part, on its own line: newest first, taken whole.
    alignas(64) std::atomic<work_unit*> inbox_{nullptr};
    std::atomic<std::size_t> inbox_size_{0};
};

}  // namespace amalgam
