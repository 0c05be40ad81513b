#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <type_traits>

#include <amalgam/tasks/detail/parallel_loop.hpp>
#include <amalgam/tasks/parallel_options.hpp>
#include <amalgam/tasks/parallel_streams.hpp>

namespace amalgam {

/// Calls `body(i)` for i = first, first + 1, ... below `last`, shared among the streams of `on`,
/// and returns when all have. The caller takes part, if it is a plain thread or a ULT of these
/// streams; another ULT parks meanwhile. Calls may be nested.
///
///     am::work_stealing_team team(3);  // and the caller
///     am::parallel_for(team, 0, n, [&](int i) { c[i] = a[i] + b[i]; });
///
/// The body may wait: its ULT parks, and the stream takes another chunk, until
/// parallel_options::tasks of them wait. The order of chunks is not specified. Iterations that wait
/// for each other need chunks of one: partition::dynamic.
///
/// Threads: any, several loops at once. `body` is called by several threads at once.
/// Failure: the first exception out of the body is thrown by the loop, once those that run have
///          returned; chunks that have not begun are left out. So does parallel_options::stop, and
///          ult::cancel() of a caller that parks, with error{canceled}. Throws error{invalid} for a
///          step below 1, in a tasklet, timer callback or poller, if no stream serves the pool, and
///          when the body calls this_task::exit(); error{canceled} if the pool is destroyed before
///          all has begun. For want of memory, fewer take part.
/// Cost:    for each stream that takes part a post(); for each chunk an atomic operation and a
///          call. No allocation in steady state. A loop of one chunk is a call. It does not wait
///          for a ULT that it posted and for which nothing is left to do: that one ends, calling
///          nothing, when it has its turn. Only if 64 such ULTs of the process have not had theirs
///          yet, it waits until its own have begun.
template <std::integral First, std::integral Last, typename Body>
requires std::invocable<Body&, std::common_type_t<First, Last>>
void parallel_for(const parallel_streams& on, First first, Last last, Body&& body,
                  const parallel_options& options = {}) {
    using index = std::common_type_t<First, Last>;
    const detail::index_sequence<index> all(static_cast<index>(first), static_cast<index>(last), 1);
    auto chunk = [&](std::size_t from, std::size_t to, std::size_t) {
        const index end = all[to];
        for (index i = all[from]; i != end; ++i)
            body(i);
    };
    detail::run_loop(detail::plan_loop(on, all.count, options), detail::body_of(chunk));
}

/// The same for first, first + step, ... below `last`.
template <std::integral First, std::integral Last, std::integral Step, typename Body>
requires std::invocable<Body&, std::common_type_t<First, Last>>
void parallel_for(const parallel_streams& on, First first, Last last, Step step, Body&& body,
                  const parallel_options& options = {}) {
    using index = std::common_type_t<First, Last>;
    const detail::index_sequence<index> all(static_cast<index>(first), static_cast<index>(last),
                                            step);
    auto chunk = [&](std::size_t from, std::size_t to, std::size_t) {
        for (std::size_t i = from; i < to; ++i)
            body(all[i]);
    };
    detail::run_loop(detail::plan_loop(on, all.count, options), detail::body_of(chunk));
}

/// Calls `body(element)` for each element of `range`, which has random access: a vector, an array,
/// a std::span. `body` may be a pointer to a member function.
template <typename Range, typename Body>
requires std::random_access_iterator<decltype(std::begin(std::declval<Range&>()))> &&
    std::invocable<Body&, decltype(*std::begin(std::declval<Range&>()))>
void parallel_for(const parallel_streams& on, Range&& range, Body&& body,
                  const parallel_options& options = {}) {
    const auto begin = std::begin(range);
    const auto count = static_cast<std::size_t>(std::size(range));
    auto chunk = [&](std::size_t from, std::size_t to, std::size_t) {
        using distance = std::iter_difference_t<decltype(begin)>;
        for (std::size_t i = from; i < to; ++i)
            std::invoke(body, begin[static_cast<distance>(i)]);
    };
    detail::run_loop(detail::plan_loop(on, count, options), detail::body_of(chunk));
}

/// Calls `body(from, to)` for each chunk, for loops that set something up first.
template <std::integral First, std::integral Last, typename Body>
requires std::invocable<Body&, std::common_type_t<First, Last>, std::common_type_t<First, Last>>
void parallel_for_chunks(const parallel_streams& on, First first, Last last, Body&& body,
                         const parallel_options& options = {}) {
    using index = std::common_type_t<First, Last>;
    const detail::index_sequence<index> all(static_cast<index>(first), static_cast<index>(last), 1);
    auto chunk = [&](std::size_t from, std::size_t to, std::size_t) { body(all[from], all[to]); };
    detail::run_loop(detail::plan_loop(on, all.count, options), detail::body_of(chunk));
}

}  // namespace amalgam
