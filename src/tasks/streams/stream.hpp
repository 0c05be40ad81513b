#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <thread>

#include <amalgam/tasks/execution_stream.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/idle/bell.hpp"
#include "tasks/streams/primary.hpp"
#include "tasks/streams/scheduler_stack.hpp"
#include "tasks/streams/stop_state.hpp"
#include "tasks/streams/stream_loop.hpp"

namespace amalgam::detail {

/// Implementation of execution_stream, made of parts: what it runs and how it switches
/// (dispatcher), its schedulers and the pools that it serves for them (scheduler_stack), its loop
/// (stream_loop), and how far its end has come (stop_state).
///
/// Owns:    those, and its thread.
/// Threads: any; run_ready() and a driven stream's replace_scheduler() by one at a time.
class stream {
public:
    stream(execution_stream& owner, std::unique_ptr<scheduler> order,
           execution_stream_options options);
    ~stream();
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;

    /// The stream running the caller, or null.
    static stream* current() noexcept {
        const dispatcher* const here = dispatcher::current();
        return here == nullptr ? nullptr : &here->of();
    }

    execution_stream& owner() noexcept { return owner_; }
    const execution_stream_options& options() const noexcept { return options_; }
    dispatcher& runs() noexcept { return runs_; }
    scheduler_stack& schedulers() noexcept { return schedulers_; }
    stream_loop& loop() noexcept { return loop_; }

    std::size_t run_ready(std::size_t most);
    void replace_scheduler(std::unique_ptr<scheduler> order);
    /// A pool that it serves is about to be destroyed: no scheduler is asked any more.
    void lose_pool() noexcept;
    std::chrono::nanoseconds cpu_time() const noexcept;

    int rank() const noexcept { return rank_.load(std::memory_order_relaxed); }
    void set_rank(int to);
    stream_state state() const noexcept;
    cpu_set cpus() const;
    void set_cpus(const cpu_set& to);
    void revive();

    void stop();
    bool stop_within(std::chrono::nanoseconds limit);
    /// Its owner is destroyed while it runs the caller: it continues without an owner.
    void stay() noexcept;

    /// In a fork() child, for each stream of the parent: see forks.hpp.
    void is_forked() noexcept;
    bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }
    void refuse_forked() const;

private:
    [[noreturn]] void refuse_to_run_ready() const;
    void start();
    void begin_running();
    void thread_main();
    void stop_now();
    void stop_primary();
    void finish_ready() noexcept;
    bool may_go_on_stopping() noexcept;
    void end_schedulers() noexcept;

    execution_stream& owner_;
    const execution_stream_options options_;
    const std::unique_ptr<bell, bell::giver> bell_;
    dispatcher runs_;
    scheduler_stack schedulers_;
    stop_state stop_;
    stream_loop loop_;
    std::atomic<bool> forked_{false};
    std::atomic<int> rank_{-1};
    mutable std::mutex thread_lock_;  // guards the next two against set_cpus()
    cpu_set cpus_;
    std::thread thread_;
    std::unique_ptr<primary> primary_;  // null: it has a thread of its own, or is driven
};

/// For this layer's functions of drive.hpp.
struct stream_access {
    static stream& of(const execution_stream& what) noexcept { return *what.impl_; }
};

/// Throws error{invalid} if the calling thread cannot become a primary stream.
void check_primary(const execution_stream_options& options);
void refuse_null(const std::unique_ptr<scheduler>& order);

}  // namespace amalgam::detail
