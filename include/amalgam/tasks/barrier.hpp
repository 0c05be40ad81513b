#pragma once

#include <cstddef>

#include <amalgam/tasks/detail/wait_list.hpp>
#include <amalgam/tasks/detail/wait_operation.hpp>

namespace amalgam {

/// Where a fixed number of parties meet, again and again: all go on when the last has arrived.
/// Parties may be ULTs, plain threads and coroutines.
///
/// Threads: any. May be destroyed by any party as soon as its last arrival returned, if nobody
///          will arrive again.
/// Failure: a barrier of no party throws error{invalid}, as does an arrival when all have dropped
///          out; so does arrive_and_wait() inside a tasklet, timer callback or poller. Who is
///          canceled while it waits has arrived all the same.
/// Cost:    a short lock; the last to arrive wakes the others.
class barrier {
    using coroutine_wait = detail::wait_operation<barrier>;

public:
    explicit barrier(std::size_t parties);
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    /// True for one of the parties in each round: the last to arrive.
    bool arrive_and_wait();
    /// Arrives, and is not expected any more. Does not wait.
    void arrive_and_drop();
    /// For coroutines: `co_await b.start_arrive();`, which gives what arrive_and_wait() does.
    auto start_arrive() noexcept { return arrival(*this); }

private:
    struct [[nodiscard]] arrival : coroutine_wait {
        using coroutine_wait::coroutine_wait;
        bool await_resume() const noexcept { return !was_listed(); }
    };

    template <typename, typename...>
    friend class detail::wait_operation;
    bool enlist(detail::wait_node& me);
    void check_parties() const;  // the list's lock is held

    detail::wait_list waiting_;
    std::size_t parties_;
    std::size_t missing_;  // in this round
};

}  // namespace amalgam
