#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <utility>

#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam::detail {

/// The exception that is being handled, to be thrown elsewhere: instead of what this_task::exit()
/// throws, which would end the ULT of whoever rethrows it, error{invalid}.
std::exception_ptr exception_to_pass_on() noexcept;

/// error{canceled}, for who finds that a part of the work has never begun: its pool is gone.
std::exception_ptr left_in_pool() noexcept;

/// ULTs that one caller posts and waits for, and the first exception of any of them. On the
/// caller's stack: wait() returns once nobody else refers to it.
///
/// Threads: post(), fail() and ended() by the caller and by those that it posted; wait() by the
///          caller, once.
/// Failure: the constructor throws error{invalid} where the caller cannot wait.
class posted_tasks {
public:
    posted_tasks() : stopped_(own_stop_) {}
    /// `stopped`: told when the caller is canceled, and by fail().
    explicit posted_tasks(std::atomic<bool>& stopped) : stopped_(stopped) {}
    posted_tasks(const posted_tasks&) = delete;
    posted_tasks& operator=(const posted_tasks&) = delete;

    /// Runs `body()`, which must not throw. One that never runs, because its pool is destroyed,
    /// counts as ended. Throws as amalgam::post(), changing nothing.
    template <typename Body>
    void post(pool& where, Body body) {
        join_in();
        amalgam::post(where, [body = std::move(body), mine = ticket(*this)]() mutable { body(); });
    }
    /// What post() does without posting: one more is waited for, until it leaves.
    void join_in() noexcept { open_.fetch_add(1, std::memory_order_relaxed); }
    void leave(std::size_t number) noexcept;
    /// Keeps the exception that is being handled, if it is the first, and asks others to end.
    void fail() noexcept;
    /// Whether what has not begun is to be left out.
    bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
    void stop() noexcept { stopped_.store(true, std::memory_order_relaxed); }
    /// Waits for all, then throws the first exception; error{canceled} if the caller was canceled.
    void wait();

private:
    class ticket {
    public:
        explicit ticket(posted_tasks& of) noexcept : of_(&of) {}
        ticket(ticket&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
        ticket& operator=(ticket&&) = delete;
        ~ticket() {
            if (of_ != nullptr) of_->leave(1);
        }

    private:
        posted_tasks* of_;
    };
    waiter caller_;
    std::atomic<std::size_t> open_{1};  // the caller, and those posted
    std::atomic<bool> own_stop_{false};
    std::atomic<bool>& stopped_;
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;
};

}  // namespace amalgam::detail
