#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <amalgam/tasks/detail/posted_tasks.hpp>
#include <amalgam/tasks/parallel_streams.hpp>

namespace amalgam {

namespace detail {

/// Branches that wait in a stream's pool from which on further ones are calls: enough for others to
/// steal.
inline constexpr std::size_t enough_branches = 4;

/// One divide_and_conquer(), shared by all of its branches.
template <typename Problem, typename IsBase, typename Solve, typename Split, typename Combine>
class conquest {
public:
    using result = std::decay_t<std::invoke_result_t<Solve&, Problem&>>;

    conquest(const parallel_streams& on, IsBase& is_base, Solve& solve, Split& split,
             Combine& combine) noexcept
        : on_(on), is_base_(is_base), solve_(solve), split_(split), combine_(combine) {}

    result run(Problem& whole) {
        std::optional<result> found;
        if (on_.runs_caller() || !this_task::in_ult()) {
            found = conquer(whole);
        } else {
            posted_tasks elsewhere(failed_);
            elsewhere.post(on_.nearest_pool(), [&]() noexcept { found = conquer(whole); });
            elsewhere.wait();
        }
        if (failure_) std::rethrow_exception(failure_);
        if (!found) std::rethrow_exception(left_in_pool());
        return std::move(*found);
    }

private:
    /// Empty: it has failed, here or elsewhere.
    std::optional<result> conquer(Problem& problem) noexcept {
        if (failed_.load(std::memory_order_relaxed)) return std::nullopt;
        try {
            if (std::invoke(is_base_, std::as_const(problem))) return std::invoke(solve_, problem);
            auto parts = std::invoke(split_, problem);
            std::vector<std::optional<result>> results(std::size(parts));
            conquer_all(parts, results);
            std::vector<result> all;
            all.reserve(results.size());
            for (std::optional<result>& each : results) {
                if (!each) return std::nullopt;
                all.push_back(std::move(*each));
            }
            if constexpr (std::is_invocable_v<Combine&, Problem&, std::vector<result>&>) {
                return std::invoke(combine_, problem, all);
            } else {
                return std::invoke(combine_, all);
            }
        } catch (...) {
            failed_.store(true, std::memory_order_relaxed);
            if (!has_failure_.exchange(true)) failure_ = exception_to_pass_on();
            return std::nullopt;
        }
    }
    template <typename Parts>
    void conquer_all(Parts& parts, std::vector<std::optional<result>>& results) {
        posted_tasks branches(failed_);
        pool& here = on_.nearest_pool();
        auto part = std::begin(parts);
        for (std::size_t i = 0; i < results.size(); ++i, ++part) {
            Problem& problem = *part;
            std::optional<result>& into = results[i];
            // The last one is for the caller, which has nothing else to do.
            const bool fork = i + 1 < results.size() && here.size() < enough_branches;
            if (!fork || !try_post(branches, here, problem, into)) into = conquer(problem);
        }
        branches.wait();
    }
    bool try_post(posted_tasks& branches, pool& where, Problem& problem,
                  std::optional<result>& into) noexcept {
        try {
            branches.post(where, [this, &problem, &into]() noexcept { into = conquer(problem); });
            return true;
        } catch (...) {
            return false;  // no memory, or streams that have stopped: as a call
        }
    }

    const parallel_streams& on_;
    IsBase& is_base_;
    Solve& solve_;
    Split& split_;
    Combine& combine_;
    std::atomic<bool> failed_{false};
    std::atomic<bool> has_failure_{false};
    std::exception_ptr failure_;
};

}  // namespace detail

/// Solves `problem` on the streams of `on`: if `is_base(problem)`, by `solve(problem)`; otherwise
/// `split(problem)` gives a container of smaller ones, which are solved in parallel, and
/// `combine(results)`, or `combine(problem, results)`, makes one result of a std::vector of theirs,
/// in the same order.
///
///     long n = am::divide_and_conquer(team, 30, [](int p) { return p < 15; },
///         [](int p) { return fibonacci(p); },
///         [](int p) { return std::vector{p - 1, p - 2}; },
///         [](std::vector<long>& r) { return r[0] + r[1]; });
///
/// A branch is a ULT while few wait to be taken by idle streams, and else a call. Any of the
/// functions may wait. The caller takes part as in parallel_for().
///
/// Threads: any. The functions are called by several threads at once.
/// Failure: the first exception of any function is thrown, once the branches that run have
///          returned; no further one begins. error{canceled} if the caller was canceled, or the
///          pool is destroyed before all has begun; in a tasklet, timer callback or poller
///          error{invalid}, if it would have to wait.
/// Cost:    for each problem that is split two allocations, and for each ULT a post(). Recursion
///          takes stack: a few hundred bytes for each level.
template <typename Problem, typename IsBase, typename Solve, typename Split, typename Combine>
auto divide_and_conquer(const parallel_streams& on, Problem problem, IsBase&& is_base,
                        Solve&& solve, Split&& split, Combine&& combine) {
    using all =
        detail::conquest<Problem, std::remove_reference_t<IsBase>, std::remove_reference_t<Solve>,
                         std::remove_reference_t<Split>, std::remove_reference_t<Combine>>;
    static_assert(!std::is_void_v<typename all::result>, "solve() must return the result");
    return all(on, is_base, solve, split, combine).run(problem);
}

}  // namespace amalgam
