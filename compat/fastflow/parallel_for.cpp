#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <ff/mapping_utils.hpp>
#include <ff/parallel_for.hpp>

namespace ff::detail {

struct loop_team::state {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::thread> threads;
    const std::function<void(int)>* part = nullptr;
    unsigned long round = 0;
    long taking_part = 0;
    long busy = 0;
    bool stop = false;
    std::exception_ptr failure;
    std::atomic<bool> failed{false};

    void call(int thread) {
        try {
            (*part)(thread);
        } catch (...) {
            const std::lock_guard guard(mutex);
            if (failure == nullptr) failure = std::current_exception();
            failed.store(true, std::memory_order_relaxed);
        }
    }
    void main(int thread) {
        unsigned long seen = 0;
        std::unique_lock guard(mutex);
        for (;;) {
            changed.wait(guard, [&] { return stop || round != seen; });
            if (stop) return;
            seen = round;
            if (thread >= taking_part) continue;
            guard.unlock();
            call(thread);
            guard.lock();
            if (--busy == 0) changed.notify_all();
        }
    }
};

loop_team::loop_team(long threads)
    : size_(threads < 1 ? std::max<long>(ff_numCores(), 1) : threads),
      took_part_(size_),
      state_(std::make_unique<state>()) {}

loop_team::~loop_team() {
    {
        const std::lock_guard guard(state_->mutex);
        state_->stop = true;
        state_->changed.notify_all();
    }
    for (std::thread& each : state_->threads)
        each.join();
}

long loop_team::start(long threads) {
    state& all = *state_;
    // A new thread may see the round before: it takes no part there, as its number is too large.
    const std::lock_guard guard(all.mutex);
    while (static_cast<long>(all.threads.size()) + 1 < threads) {
        try {
            const int id = static_cast<int>(all.threads.size()) + 1;
            all.threads.emplace_back([&all, id] { all.main(id); });
        } catch (const std::exception& failure) {
            error("a loop has %zu threads, because one more cannot be started: %s\n",
                  all.threads.size() + 1, failure.what());
            threads = size_ = static_cast<long>(all.threads.size()) + 1;
        }
    }
    return threads;
}

void loop_team::run(long threads, const std::function<void(int)>& part) {
    state& all = *state_;
    const unsigned long begun = getusec();
    std::unique_lock guard(all.mutex);
    all.part = &part;
    all.failure = nullptr;
    all.failed = false;
    all.taking_part = took_part_ = threads;
    all.busy = threads - 1;
    ++all.round;
    if (threads > 1) all.changed.notify_all();
    guard.unlock();
    all.call(0);
    guard.lock();
    all.changed.wait(guard, [&] { return all.busy == 0; });
    took_ = static_cast<double>(getusec() - begun) / 1000;
    if (all.failure != nullptr) std::rethrow_exception(all.failure);
}

void loop_team::ranges(long first, long last, long step, long grain, bool in_turns, long threads,
                       const std::function<void(long, long, int)>& body) {
    if (step < 1) {
        error("a parallel loop has step %ld, expected 1 or more\n", step);
        return;
    }
    if (first >= last) return;
    // Unsigned: the numbers from first to last may be more than a long can count.
    using number = unsigned long;
    const auto by = static_cast<number>(step);
    const number span = static_cast<number>(last) - static_cast<number>(first);
    const number count = (span - 1) / by + 1;
    // Before the iterations are shared: nobody would do those of a thread that cannot be started.
    threads = start(static_cast<long>(std::min(static_cast<number>(clamp(threads)), count)));
    const auto team = static_cast<number>(threads);
    if (grain < 0) in_turns = true;
    const number size = grain == 0  ? (count - 1) / team + 1
                        : grain < 0 ? 0 - static_cast<number>(grain)
                                    : static_cast<number>(grain);
    const number parts = (count - 1) / size + 1;
    const auto range = [&](number at, int thread) {
        const number from = static_cast<number>(first) + at * size * by;
        const number to = at + 1 == parts ? static_cast<number>(last) : from + size * by;
        body(static_cast<long>(from), static_cast<long>(to), thread);
    };
    std::atomic<number> next{0};
    run(threads, [&](int thread) {
        if (in_turns || grain == 0) {
            for (auto at = static_cast<number>(thread); at < parts && !state_->failed; at += team)
                range(at, thread);
        } else {
            for (number at;
                 (at = next.fetch_add(1, std::memory_order_relaxed)) < parts && !state_->failed;)
                range(at, thread);
        }
    });
}

}  // namespace ff::detail
