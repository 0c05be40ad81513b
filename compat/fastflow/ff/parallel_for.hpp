#pragma once

#include <functional>
#include <type_traits>
#include <utility>

#include <ff/parallel_loops.hpp>

namespace ff {

namespace detail {

/// What the macros below expand to: a loop, then << its body, then for reductions >> how.
struct loop_text {
    template <typename Body>
    void operator<<(const Body& body) {
        if (loops != nullptr)
            loops->parallel_for_thid(first, last, step, grain, body, threads);
        else
            ParallelFor(threads).parallel_for_thid(first, last, step, grain, body, threads);
    }
    ParallelFor* loops;
    long first, last, step, grain, threads;
};
template <typename T>
struct reduce_text {
    reduce_text& operator<<(std::function<void(long, T&)> the_body) {
        body = std::move(the_body);
        return *this;
    }
    template <typename Reduce>
    void operator>>(const Reduce& reduce) {
        const T identity_now = identity;
        if (loops != nullptr)
            loops->parallel_reduce(var, identity_now, first, last, step, grain, body, reduce,
                                   threads);
        else
            ff::parallel_reduce(var, identity_now, first, last, step, grain, body, reduce, threads);
    }
    ParallelForReduce<T>* loops;
    T& var;
    T identity;
    long first, last, step, grain, threads;
    std::function<void(long, T&)> body = {};
};

}  // namespace detail

}  // namespace ff

#define PARFOR_STATIC(grain) (grain)
#define PARFOR_DYNAMIC(grain) (grain)
#define FF_PARFOR_BEGIN(name, i, first, last, step, grain, nw)             \
    {                                                                      \
        ff::detail::loop_text name{nullptr, first, last, step, grain, nw}; \
        name << [&](const long i, [[maybe_unused]] const int _ff_thread_id)
#define FF_PARFOR_END(name) \
    ;                       \
    }
#define FF_PARFOR_DECL(name) ff::ParallelFor* name
#define FF_PARFOR_ASSIGN(name, nw) name = new ff::ParallelFor(nw)
#define FF_PARFOR_INIT(name, nw) ff::ParallelFor* name = new ff::ParallelFor(nw)
#define FF_PARFOR_START(name, i, first, last, step, grain, nw) \
    ff::detail::loop_text{name, first, last, step, grain, nw}  \
        << [&](const long i, [[maybe_unused]] const int _ff_thread_id)
#define FF_PARFOR_STOP(name)
#define FF_PARFOR_DONE(name) delete name
#define FF_PARFORREDUCE_INIT(name, T, nw) \
    ff::ParallelForReduce<T>* name = new ff::ParallelForReduce<T>(nw)
#define FF_PARFORREDUCE_START(name, var, identity, i, first, last, step, grain, nw)              \
    ff::detail::reduce_text<std::remove_reference_t<decltype(var)>>{name, var,  identity, first, \
                                                                    last, step, grain,    nw}    \
        << [&](const long i, std::remove_reference_t<decltype(var)>& var)
#define FF_PARFORREDUCE_STOP(name, var, operation) \
    >> [](auto& result, const auto& part) { result = result operation part; }
#define FF_PARFORREDUCE_F_STOP(name, var, reduce) >> reduce
#define FF_PARFORREDUCE_DONE(name) delete name
#define FF_PARFORREDUCE_BEGIN(name, var, identity, i, first, last, step, grain, nw) \
    {                                                                               \
        ff::detail::reduce_text<std::remove_reference_t<decltype(var)>>{            \
            nullptr, var, identity, first, last, step, grain, nw}                   \
            << [&](const long i, std::remove_reference_t<decltype(var)>& var)
#define FF_PARFORREDUCE_END(name, var, operation)                              \
    >> [](auto& result, const auto& part) { result = result operation part; }; \
    }
#define FF_PARFORREDUCE_F_END(name, var, reduce) \
    >> reduce;                                   \
    }
