#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include <ff/config.hpp>

namespace ff {

/// All threads that were counted in wait for one another, again and again. Threads: any.
class Barrier {
public:
    explicit Barrier(std::size_t threads = MAX_NUM_THREADS) : threads_(threads) {}
    int barrierSetup(std::size_t threads) {
        const std::lock_guard guard(mutex_);
        threads_ = threads;
        return 0;
    }
    void doBarrier(std::size_t = 0) {
        std::unique_lock guard(mutex_);
        const std::size_t round = round_;
        if (++arrived_ == threads_) {
            arrived_ = 0;
            ++round_;
            all_here_.notify_all();
        } else {
            all_here_.wait(guard, [&] { return round != round_; });
        }
    }

private:
    std::mutex mutex_;
    std::condition_variable all_here_;
    std::size_t threads_;
    std::size_t arrived_ = 0;
    std::size_t round_ = 0;
};
using spinBarrier = Barrier;
using ffBarrier = Barrier;
template <int>
struct barrierSelector : Barrier {};

}  // namespace ff
