#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/tasks/detail/parallel_loop.hpp>
#include <amalgam/tasks/parallel_options.hpp>
#include <amalgam/tasks/parallel_streams.hpp>

namespace amalgam {

/// As parallel_for(), with a result: `body(i, part)` adds iteration i to `part`, a value that
/// begins as a copy of `identity`; in the end the caller joins all parts, `join(a, b)`, in the
/// order of their numbers.
///
///     double sum = am::parallel_reduce(team, 0, n, 0.0,
///         [&](int i, double& part) { part += a[i] * b[i]; }, std::plus<>());
///
/// Which iterations make up a part is not specified, so `join` must be associative and commutative.
/// With partition::fixed and a number of tasks that is set, the parts are the same in each run: so
/// is a sum of floating-point numbers.
///
/// Failure: as parallel_for(), and what copying `identity` and `join` throw.
/// Cost:    as parallel_for(), and an allocation.
template <std::integral First, std::integral Last, typename Value, typename Body, typename Join>
requires std::invocable<Body&, std::common_type_t<First, Last>, Value&>&&
    std::invocable<Join&, Value, Value>
        Value parallel_reduce(const parallel_streams& on, First first, Last last, Value identity,
                              Body&& body, Join&& join, const parallel_options& options = {}) {
    using index = std::common_type_t<First, Last>;
    struct alignas(64) slot {  // of its own cache line
        std::optional<Value> part;
    };
    const detail::index_sequence<index> all(static_cast<index>(first), static_cast<index>(last), 1);
    const detail::loop_plan plan = detail::plan_loop(on, all.count, options);
    std::vector<slot> slots(plan.parts);
    auto chunk = [&](std::size_t from, std::size_t to, std::size_t number) {
        std::optional<Value>& kept = slots[number].part;
        // A local value may stay in registers, as nothing else refers to it.
        Value part = kept ? std::move(*kept) : identity;
        const index end = all[to];
        for (index i = all[from]; i != end; ++i)
            body(i, part);
        kept.emplace(std::move(part));
    };
    detail::run_loop(plan, detail::body_of(chunk));
    std::optional<Value> whole;
    for (slot& each : slots) {
        if (!each.part) continue;
        if (whole) {
            Value joined = join(std::move(*whole), std::move(*each.part));
            whole.emplace(std::move(joined));
        } else {
            whole.emplace(std::move(*each.part));
        }
    }
    return whole ? std::move(*whole) : identity;
}

}  // namespace amalgam
