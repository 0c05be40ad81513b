#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/transports/shm/greeting.hpp"
#include "fabric/transports/shm/watch.hpp"

namespace amalgam::detail {

/// Somebody who connected and has not greeted yet.
struct shm_newcomer {
    unique_fd socket;
    shm_stranger who;
    clock::time_point patience;  ///< Until when it must have greeted.
    shm_watch watch{shm_watch::kind::newcomer, this};
};

/// Where a port is connected to: the socket that listens, and those who came and have not greeted.
///
/// Threads: the port's.
class shm_door {
public:
    /// No more than so many stand in the door at once; others wait in the kernel's queue.
    static constexpr std::size_t max_newcomers = 256;

    shm_door() noexcept = default;  ///< Does not listen.

    /// Listens at `name`, or at a random one if that is empty.
    /// Failure: `in_use` when a live process has the name.
    static result<shm_door> open(std::string_view name);

    bool is_open() const noexcept { return static_cast<bool>(socket_); }
    int fd() const noexcept { return socket_.get(); }
    const std::string& name() const noexcept { return name_; }
    bool is_crowded() const noexcept { return newcomers_.size() >= max_newcomers; }
    bool is_empty() const noexcept { return newcomers_.empty(); }

    /// Lets the next one in who is of the same user. nullptr: nobody waits, or it is crowded.
    shm_newcomer* let_in(clock::time_point patience) noexcept;
    /// It has greeted, or is sent away.
    void dismiss(shm_newcomer& who) noexcept;
    /// Those whose patience ended before `now` are sent away.
    void dismiss_late(clock::time_point now) noexcept;

private:
    unique_fd accept_one() noexcept;

    std::string name_;
    unique_fd socket_;
    unique_fd spare_;  // Given up for a moment when there are no descriptors: see accept_one().
    std::vector<std::unique_ptr<shm_newcomer>> newcomers_;
};

}  // namespace amalgam::detail
