#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include <ff/parallel_loops.hpp>

namespace ff {

namespace detail {

/// What the macros below expand to: a loop, then << its body of a range of iterations, and for
/// reductions >> how.
struct loop_text {
    template <typename Body>
    void operator<<(const Body& body) {
        if (loops != nullptr)
            loops->parallel_for_idx(first, last, step, grain, body, threads);
        else
            ParallelFor(threads).parallel_for_idx(first, last, step, grain, body, threads);
    }
    loop_text(ParallelFor* the_loops, long from, long to, long by, long at_once, long nw)
        : loops(the_loops), first(from), last(to), step(by), grain(at_once), threads(nw) {}
    ParallelFor* loops;
    long first, last, step, grain, threads;
};
template <typename T>
struct reduce_text {
    reduce_text& operator<<(std::function<void(long, long, int, T&)> the_body) {
        body = std::move(the_body);
        return *this;
    }
    template <typename Reduce>
    void operator>>(const Reduce& reduce) {
        const T identity_now = identity;
        const auto part = [this](long from, long to, T& mine, int thread) {
            body(from, to, thread, mine);
        };
        if (loops != nullptr)
            loops->parallel_reduce_idx(var, identity_now, first, last, step, grain, part, reduce,
                                       threads);
        else
            ff::parallel_reduce_idx(var, identity_now, first, last, step, grain, part, reduce,
                                    threads);
    }
    reduce_text(ParallelForReduce<T>* the_loops, T& the_var, T the_identity, long from, long to,
                long by, long at_once, long nw)
        : loops(the_loops),
          var(the_var),
          identity(the_identity),
          first(from),
          last(to),
          step(by),
          grain(at_once),
          threads(nw) {}
    ParallelForReduce<T>* loops;
    T& var;
    T identity;
    long first, last, step, grain, threads;
    std::function<void(long, long, int, T&)> body;
};

}  // namespace detail

}  // namespace ff

// A loop's body stands between two of them; `continue` and `break` leave an iteration, or a
// thread's range of them. Those with IDX in their name, and FF_PARFOR2_START, have the range as
// body: from ff_start_idx to before ff_stop_idx (FF_PARFOR2_START: ff_start_i, ff_stop_i). Within a
// body, _ff_thread_id is which thread it is. Grain: thread t gets ranges t, t + threads, ...
// (PARFOR_STATIC), or whoever is free gets the next (PARFOR_DYNAMIC).
#define PARFOR_STATIC(grain) ((grain) > 0 ? -(grain) : (grain))
#define PARFOR_DYNAMIC(grain) ((grain) < 0 ? -(grain) : (grain))

// What they are made of.
#define FF_LOOP_RANGE(begin, end)                                           \
    [&]([[maybe_unused]] const long begin, [[maybe_unused]] const long end, \
        [[maybe_unused]] const int _ff_thread_id) {
#define FF_REDUCE_RANGE(begin, end, var)                                    \
    [&]([[maybe_unused]] const long begin, [[maybe_unused]] const long end, \
        [[maybe_unused]] const int _ff_thread_id,                           \
        [[maybe_unused]] std::remove_reference_t<decltype(var)>& var) {
#define FF_EACH(i, step) for (long i = ff_start_##i; i < ff_stop_##i; i += step)
#define FF_REDUCE_TEXT(loops, var, identity, first, last, step, grain, nw)                       \
    ff::detail::reduce_text<std::remove_reference_t<decltype(var)>>(loops, var, identity, first, \
                                                                    last, step, grain, nw)

// Loops that have their threads for themselves.
#define FF_PARFOR_BEGIN_IDX(name, i, first, last, step, grain, nw, scheduler) \
    {                                                                         \
        static_cast<void>(scheduler);                                         \
        ff::detail::loop_text name(nullptr, first, last, step, grain, nw);    \
        name << FF_LOOP_RANGE(ff_start_idx, ff_stop_idx)
#define FF_PARFOR_BEGIN(name, i, first, last, step, grain, nw)             \
    {                                                                      \
        ff::detail::loop_text name(nullptr, first, last, step, grain, nw); \
        name << FF_LOOP_RANGE(ff_start_##i, ff_stop_##i) FF_EACH(i, step)
#define FF_PARFOR_END(name) \
    }                       \
    ;                       \
    }
#define FF_PARFORREDUCE_BEGIN(name, var, identity, i, first, last, step, grain, nw) \
    {                                                                               \
        FF_REDUCE_TEXT(nullptr, var, identity, first, last, step, grain, nw)        \
            << FF_REDUCE_RANGE(ff_start_##i, ff_stop_##i, var) FF_EACH(i, step)
#define FF_PARFORREDUCE_BEGIN_IDX(name, var, identity, i, first, last, step, grain, nw, scheduler) \
    {                                                                                              \
        static_cast<void>(scheduler);                                                              \
        FF_REDUCE_TEXT(nullptr, var, identity, first, last, step, grain, nw)                       \
            << FF_REDUCE_RANGE(ff_start_idx, ff_stop_idx, var)
#define FF_PARFORREDUCE_END(name, var, operation) \
    FF_PARFORREDUCE_STOP(name, var, operation)    \
    }
#define FF_PARFORREDUCE_F_END(name, var, reduce) \
    FF_PARFORREDUCE_F_STOP(name, var, reduce)    \
    }

// Loops of a ParallelFor: `name` points to it.
#define FF_PARFOR_DECL(name) ff::ParallelFor* name
#define FF_PARFOR_ASSIGN(name, nw) name = new ff::ParallelFor(nw)
#define FF_PARFOR_INIT(name, nw) ff::ParallelFor* name = new ff::ParallelFor(nw)
#define FF_PARFOR_DONE(name) delete name;
#define FF_PARFOR_START(name, i, first, last, step, grain, nw) \
    ff::detail::loop_text(name, first, last, step, grain, nw)  \
        << FF_LOOP_RANGE(ff_start_##i, ff_stop_##i) FF_EACH(i, step)
#define FF_PARFOR2_START(name, i, first, last, step, grain, nw) \
    ff::detail::loop_text(name, first, last, step, grain, nw)   \
        << FF_LOOP_RANGE(ff_start_##i, ff_stop_##i)
#define FF_PARFOR_START_IDX(name, i, first, last, step, grain, nw) \
    ff::detail::loop_text(name, first, last, step, grain, nw)      \
        << FF_LOOP_RANGE(ff_start_idx, ff_stop_idx)
#define FF_PARFOR_STOP(name) \
    }                        \
    ;

// The same, and reductions, of a ParallelForReduce.
#define FF_PARFORREDUCE_DECL(name, T) ff::ParallelForReduce<T>* name
#define FF_PARFORREDUCE_ASSIGN(name, T, nw) name = new ff::ParallelForReduce<T>(nw)
#define FF_PARFORREDUCE_INIT(name, T, nw) \
    ff::ParallelForReduce<T>* name = new ff::ParallelForReduce<T>(nw)
#define FF_PARFORREDUCE_DONE(name) delete name
#define FF_PARFOR_T_START(name, T, i, first, last, step, grain, nw) \
    FF_PARFOR_START(name, i, first, last, step, grain, nw)
#define FF_PARFOR_T_START_STATIC(name, T, i, first, last, step, grain, nw) \
    FF_PARFOR_START(name, i, first, last, step, PARFOR_STATIC(grain), nw)
#define FF_PARFOR_T_START_IDX(name, T, i, first, last, step, grain, nw) \
    FF_PARFOR_START_IDX(name, i, first, last, step, grain, nw)
#define FF_PARFOR_T_STOP(name, T) FF_PARFOR_STOP(name)
#define FF_PARFORREDUCE_START(name, var, identity, i, first, last, step, grain, nw) \
    FF_REDUCE_TEXT(name, var, identity, first, last, step, grain, nw)               \
        << FF_REDUCE_RANGE(ff_start_##i, ff_stop_##i, var) FF_EACH(i, step)
#define FF_PARFORREDUCE_START_IDX(name, var, identity, i, first, last, step, grain, nw) \
    FF_REDUCE_TEXT(name, var, identity, first, last, step, grain, nw)                   \
        << FF_REDUCE_RANGE(ff_start_idx, ff_stop_idx, var)
#define FF_PARFORREDUCE_START_STATIC(name, var, identity, i, first, last, step, grain, nw) \
    FF_PARFORREDUCE_START(name, var, identity, i, first, last, step, PARFOR_STATIC(grain), nw)
#define FF_PARFORREDUCE_STOP(name, var, operation) \
    }                                              \
    >> [](auto& result, const auto& part) { result = result operation part; };
#define FF_PARFORREDUCE_F_STOP(name, var, reduce) \
    }                                             \
    >> reduce;
