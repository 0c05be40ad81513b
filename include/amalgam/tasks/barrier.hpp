#pragma once

#include <cstddef>

#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>

namespace amalgam {

/// A reusable meeting point for a fixed number of parties: all continue once the last has arrived.
/// Parties may be ULTs, plain threads and coroutines.
///
/// Threads: any. A party may destroy it as soon as its last arrival returns, if nobody will arrive
///          again.
/// Failure: throws error{invalid} for a barrier of 0 parties, and for an arrival after all have
///          dropped out; arrive_and_wait() also inside a tasklet, timer callback or poller. A party
///          canceled while waiting still counts as arrived.
/// Cost:    a short lock; the last to arrive wakes the others.
class barrier {
    using coroutine_wait = detail::wait_operation<barrier>;

public:
    explicit barrier(std::size_t parties);
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    /// Returns true for one party per round: the last to arrive.
    bool arrive_and_wait();
    /// Arrives and leaves the barrier for later rounds. Does not wait.
    void arrive_and_drop();
    /// From now on `parties` arrive in each round. Throws error{invalid} for 0, and in the middle
    /// of a round: from its first arrival, also of a party that is then canceled, to its last.
    void resize(std::size_t parties);
    /// For coroutines: `co_await b.start_arrive();`, as arrive_and_wait().
    auto start_arrive() noexcept { return arrival(*this); }

private:
    struct [[nodiscard]] arrival : coroutine_wait {
        using coroutine_wait::coroutine_wait;
        bool await_resume() const noexcept { return !was_listed(); }
    };

    template <typename, typename...>
    friend class detail::wait_operation;
    bool enlist(detail::wait_node& me);
    void check_parties() const;  // needs the list's lock

    detail::wait_list waiting_;
    std::size_t parties_;
    std::size_t missing_;  // in this round
};

}  // namespace amalgam
