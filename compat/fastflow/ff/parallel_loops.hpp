#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include <ff/node.hpp>
#include <ff/pipeline.hpp>
#include <ff/utils.hpp>

namespace ff {

enum : long { FF_AUTO = -1 };

namespace detail {

/// Threads that share the iterations of a loop, again and again; the caller is the first of them.
/// They sleep between loops.
///
/// Threads: one loop at a time.
/// Failure: the first exception out of a loop's body is thrown again by the caller's run(); what
///          was not begun then is left out. A thread that cannot be started is done without.
class loop_team {
public:
    explicit loop_team(long threads);
    ~loop_team();
    loop_team(const loop_team&) = delete;
    loop_team& operator=(const loop_team&) = delete;

    long size() const { return size_; }
    /// The iterations first, first + step, ... below last, in ranges for `body(from, to, thread)`.
    /// `grain` 0: one range for each thread. `in_turns`: thread t gets ranges t, t + threads, ...;
    /// otherwise whoever is free gets the next.
    void ranges(long first, long last, long step, long grain, bool in_turns, long threads,
                const std::function<void(long, long, int)>& body);
    long clamp(long threads) const { return threads < 1 ? size_ : std::min(threads, size_); }
    /// Of the last loop.
    long took_part() const { return took_part_; }
    double took() const { return took_; }  ///< Milliseconds.

private:
    struct state;
    /// Starts what is missing of `threads` of them. Returns how many there are of these: fewer, and
    /// so few from then on, if one cannot be started.
    long start(long threads);
    /// `part(thread)` on `threads` of them, counted from 0, which start() has returned.
    void run(long threads, const std::function<void(int)>& part);

    long size_;
    long took_part_;
    double took_ = 0;
    std::unique_ptr<state> state_;
};

/// body(i) for from, from + step, ... below to. Near the largest long, `i += step` would overflow.
template <typename Body>
void steps(long from, long to, long step, const Body& body) {
    if (to <= std::numeric_limits<long>::max() - step) {
        for (long i = from; i < to; i += step)
            body(i);
        return;
    }
    const auto by = static_cast<unsigned long>(step);
    for (auto i = static_cast<unsigned long>(from), end = static_cast<unsigned long>(to);;
         i += by) {
        body(static_cast<long>(i));
        if (end - i <= by) return;
    }
}

template <typename Body>
auto each(long step, const Body& body) {
    return [step, &body](long from, long to, int) { steps(from, to, step, body); };
}

}  // namespace detail

/// Loops whose iterations are shared among threads. A loop waits for all of them.
///
/// `step` is above 0; `grain` iterations go to a thread at a time, 0: an equal part to each; `nw`
/// threads take part, FF_AUTO: all.
/// Threads: one loop at a time.
/// Failure: an exception out of `body` is thrown again by the loop.
class ParallelFor {
public:
    explicit ParallelFor(long threads = FF_AUTO, bool = false, bool = false) : team_(threads) {}

    template <typename Body>
    void parallel_for(long first, long last, const Body& body, long nw = FF_AUTO) {
        team_.ranges(first, last, 1, 0, true, nw, detail::each(1, body));
    }
    template <typename Body>
    void parallel_for(long first, long last, long step, const Body& body, long nw = FF_AUTO) {
        team_.ranges(first, last, step, 0, true, nw, detail::each(step, body));
    }
    template <typename Body>
    void parallel_for(long first, long last, long step, long grain, const Body& body,
                      long nw = FF_AUTO) {
        team_.ranges(first, last, step, grain, false, nw, detail::each(step, body));
    }
    /// body(i, thread).
    template <typename Body>
    void parallel_for_thid(long first, long last, long step, long grain, const Body& body,
                           long nw = FF_AUTO) {
        team_.ranges(first, last, step, grain, false, nw, [&](long from, long to, int thread) {
            detail::steps(from, to, step, [&](long i) { body(i, thread); });
        });
    }
    /// body(from, to, thread).
    template <typename Body>
    void parallel_for_idx(long first, long last, long step, long grain, const Body& body,
                          long nw = FF_AUTO) {
        team_.ranges(first, last, step, grain, false, nw,
                     [&](long from, long to, int thread) { body(from, to, thread); });
    }
    /// Thread t gets the t-th grain, then the one `nw` further.
    template <typename Body>
    void parallel_for_static(long first, long last, long step, long grain, const Body& body,
                             long nw = FF_AUTO) {
        team_.ranges(first, last, step, grain, true, nw, detail::each(step, body));
    }
    void disableScheduler(bool = true) {}
    int threadPause() { return 0; }
    size_t getNWorkers() const { return static_cast<size_t>(team_.size()); }
    /// Threads of the last loop, and how many milliseconds it took.
    size_t getnw() const { return static_cast<size_t>(team_.took_part()); }
    double ffTime() const { return team_.took(); }
    double ffwTime() const { return team_.took(); }

protected:
    detail::loop_team team_;
};

/// A ParallelFor that can also reduce: each thread works on a value of its own, which begins as
/// `identity`; at the end `reduce(var, value)` is called for each, by the caller, in order.
template <typename T>
class ParallelForReduce : public ParallelFor {
public:
    using ParallelFor::ParallelFor;
    ParallelForReduce(long threads, bool, bool, bool) : ParallelFor(threads) {}

    template <typename Body, typename Reduce>
    void parallel_reduce(T& var, const T& identity, long first, long last, const Body& body,
                         const Reduce& reduce, long nw = FF_AUTO) {
        parallel_reduce_static(var, identity, first, last, 1, 0, body, reduce, nw);
    }
    template <typename Body, typename Reduce>
    void parallel_reduce(T& var, const T& identity, long first, long last, long step,
                         const Body& body, const Reduce& reduce, long nw = FF_AUTO) {
        parallel_reduce_static(var, identity, first, last, step, 0, body, reduce, nw);
    }
    template <typename Body, typename Reduce>
    void parallel_reduce(T& var, const T& identity, long first, long last, long step, long grain,
                         const Body& body, const Reduce& reduce, long nw = FF_AUTO) {
        share(var, identity, first, last, step, grain, false, nw, reduce,
              [&](long from, long to, T& mine, int) {
                  detail::steps(from, to, step, [&](long i) { body(i, mine); });
              });
    }
    template <typename Body, typename Reduce>
    void parallel_reduce_thid(T& var, const T& identity, long first, long last, long step,
                              long grain, const Body& body, const Reduce& reduce,
                              long nw = FF_AUTO) {
        share(var, identity, first, last, step, grain, false, nw, reduce,
              [&](long from, long to, T& mine, int thread) {
                  detail::steps(from, to, step, [&](long i) { body(i, mine, thread); });
              });
    }
    template <typename Body, typename Reduce>
    void parallel_reduce_idx(T& var, const T& identity, long first, long last, long step,
                             long grain, const Body& body, const Reduce& reduce,
                             long nw = FF_AUTO) {
        share(var, identity, first, last, step, grain, false, nw, reduce,
              [&](long from, long to, T& mine, int thread) { body(from, to, mine, thread); });
    }
    template <typename Body, typename Reduce>
    void parallel_reduce_static(T& var, const T& identity, long first, long last, long step,
                                long grain, const Body& body, const Reduce& reduce,
                                long nw = FF_AUTO) {
        share(var, identity, first, last, step, grain, true, nw, reduce,
              [&](long from, long to, T& mine, int) {
                  detail::steps(from, to, step, [&](long i) { body(i, mine); });
              });
    }

private:
    struct alignas(64) one {
        T value;
    };
    template <typename Reduce, typename Body>
    void share(T& var, const T& identity, long first, long last, long step, long grain,
               bool in_turns, long nw, const Reduce& reduce, const Body& body) {
        const auto threads = static_cast<size_t>(team_.clamp(nw));
        std::vector<one> values(threads, one{identity});
        team_.ranges(first, last, step, grain, in_turns, nw, [&](long from, long to, int thread) {
            body(from, to, values[static_cast<size_t>(thread)].value, thread);
        });
        for (one& each : values)
            reduce(var, each.value);
    }
};

/// A loop that sends results, by `node.put()` or ff_send_out(), to a function that one thread
/// calls.
template <typename Task>
class ParallelForPipeReduce {
public:
    explicit ParallelForPipeReduce(long threads = FF_AUTO, bool = false, bool = false)
        : team_(threads) {}
    template <typename Map>
    void parallel_for_idx(long first, long last, long step, long grain, const Map& map,
                          long nw = FF_AUTO) {
        parallel_reduce_idx(
            first, last, step, grain, map, [](Task) {}, nw);
    }
    /// map(from, to, thread, node); reduce(task) by the caller, after the loop.
    template <typename Map, typename Reduce>
    void parallel_reduce_idx(long first, long last, long step, long grain, const Map& map,
                             const Reduce& reduce, long nw = FF_AUTO) {
        std::vector<std::unique_ptr<ff_buffernode>> results;
        for (long i = team_.clamp(nw); i > 0; --i)
            results.push_back(std::make_unique<ff_buffernode>(1024, false));
        team_.ranges(first, last, step, grain, false, nw, [&](long from, long to, int thread) {
            map(from, to, thread, *results[static_cast<size_t>(thread)]);
        });
        for (const auto& each : results)
            for (void* task = nullptr; each->get(&task);)
                reduce(reinterpret_cast<Task>(task));
    }
    void disableScheduler(bool = true) {}
    int threadPause() { return 0; }

private:
    detail::loop_team team_;
};

template <typename Body>
void parallel_for(long first, long last, const Body& body, long nw = FF_AUTO) {
    ParallelFor(nw).parallel_for(first, last, body, nw);
}
template <typename Body>
void parallel_for(long first, long last, long step, const Body& body, long nw = FF_AUTO) {
    ParallelFor(nw).parallel_for(first, last, step, body, nw);
}
template <typename Body>
void parallel_for(long first, long last, long step, long grain, const Body& body,
                  long nw = FF_AUTO) {
    ParallelFor(nw).parallel_for(first, last, step, grain, body, nw);
}
template <typename Body>
void parallel_for_idx(long first, long last, long step, long grain, const Body& body,
                      long nw = FF_AUTO, bool = false) {
    ParallelFor(nw).parallel_for_idx(first, last, step, grain, body, nw);
}
template <typename Body, typename T, typename Reduce>
void parallel_reduce(T& var, const T& identity, long first, long last, long step, long grain,
                     const Body& body, const Reduce& reduce, long nw = FF_AUTO) {
    ParallelForReduce<T>(nw).parallel_reduce(var, identity, first, last, step, grain, body, reduce,
                                             nw);
}
template <typename Body, typename T, typename Reduce>
void parallel_reduce_idx(T& var, const T& identity, long first, long last, long step, long grain,
                         const Body& body, const Reduce& reduce, long nw = FF_AUTO, bool = false) {
    ParallelForReduce<T>(nw).parallel_reduce_idx(var, identity, first, last, step, grain, body,
                                                 reduce, nw);
}

}  // namespace ff
