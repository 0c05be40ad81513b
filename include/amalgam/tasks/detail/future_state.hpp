#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/detail/coroutine_unit.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// Runs when a future becomes ready. complete() runs it once, on the completing thread; it may be
/// destroyed by its own run.
struct continuation {
    void (*resume)(continuation&) noexcept;
};

/// The part of a future's shared state that is independent of the value's type. A layer that pools
/// its operations derives from future_state<T> and overrides recycle().
///
/// Owner:   reference counted; created with one reference, which is the promise's.
/// Threads: one completer, one waiter at a time, any threads.
class future_core {
public:
    using time_point = std::chrono::steady_clock::time_point;
    /// Called at most once, by the future's side, and only before it is ready.
    using abandon_hook = void (*)(void* context) noexcept;

    future_core() = default;
    future_core(const future_core&) = delete;
    future_core& operator=(const future_core&) = delete;

    void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) recycle();
    }

    bool ready() const noexcept { return next_.load(std::memory_order_acquire) == done_mark(); }
    void wait();
    bool wait_until(time_point deadline);
    /// Runs `then` at completion. False: already complete, `then` will not run. Throws
    /// error{invalid} if somebody already waits.
    bool attach(continuation& then);
    /// Takes back what attach() gave. False: complete() has taken it, and it ran or will run.
    bool detach(continuation& then) noexcept;

    /// Makes it ready and runs the continuation. At most once, after the outcome is set.
    void complete() noexcept;
    void fail(failure why) noexcept;
    void fail(std::exception_ptr why) noexcept;
    /// The promise ended without a value.
    void fail_as_broken() noexcept;

    /// Set before the future is handed out. The context must live as long as the state.
    void on_abandon(abandon_hook hook, void* context) noexcept {
        abandon_context_ = context;
        abandon_ = hook;
    }
    void abandon() noexcept {
        if (abandon_ != nullptr && !ready()) std::exchange(abandon_, nullptr)(abandon_context_);
    }

    /// Where whoever waits for it does so, for comparison only; null: nobody does.
    const void* waiter_seen() const noexcept {
        const continuation* const now = next_.load(std::memory_order_relaxed);
        return now == done_mark() ? nullptr : now;
    }

    // Once ready:
    status outcome() const noexcept { return why_.what; }
    bool has_failed() const noexcept { return exception_ != nullptr || !why_.what.ok(); }
    void throw_if_failed() const;

protected:
    virtual ~future_core() = default;
    /// Called when no reference is left. Deletes; an override may keep the memory.
    virtual void recycle() noexcept { delete this; }
    /// Reinitializes a recycled state, with one reference.
    void reset() noexcept;

private:
    // Never dereferenced.
    static continuation* done_mark() noexcept {
        return reinterpret_cast<continuation*>(std::uintptr_t{1});
    }

    std::atomic<continuation*> next_{nullptr};  // null: no waiter; done_mark(): ready
    std::atomic<std::uint32_t> references_{1};
    abandon_hook abandon_ = nullptr;
    void* abandon_context_ = nullptr;
    failure why_{};
    std::exception_ptr exception_;
};

template <typename T>
class future_state : public future_core {
public:
    using value_type = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

    template <typename... Arguments>
    void set(Arguments&&... arguments) {
        value_.emplace(std::forward<Arguments>(arguments)...);
        complete();
    }
    value_type take() {
        if (has_failed()) [[unlikely]]
            throw_if_failed();
        return std::move(*value_);
    }

    static void* operator new(std::size_t bytes);
    static void operator delete(void* memory, std::size_t bytes) noexcept;
    // Of a T that is aligned to more than any small block.
    static void* operator new(std::size_t bytes, std::align_val_t to) {
        return ::operator new(bytes, to);
    }
    static void operator delete(void* memory, std::align_val_t to) noexcept {
        ::operator delete(memory, to);
    }

protected:
    /// Where set() puts the value. Who puts it there must complete() then.
    std::optional<value_type>& place() noexcept { return value_; }
    void reset() noexcept {
        value_.reset();
        future_core::reset();
    }

private:
    std::optional<value_type> value_;
};

template <typename T>
void* future_state<T>::operator new(std::size_t bytes) {
    return allocate_block(bytes);
}
template <typename T>
void future_state<T>::operator delete(void* memory, std::size_t bytes) noexcept {
    free_block(memory, bytes);
}

/// Resumes a coroutine when the future is complete.
class coroutine_resumer : public continuation, public coroutine_unit {
public:
    coroutine_resumer() noexcept
        : continuation{[](continuation& self) noexcept {
              static_cast<coroutine_resumer&>(self).make_ready();
          }} {}
};

}  // namespace amalgam::detail
