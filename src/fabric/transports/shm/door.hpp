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

/// An accepted connection without a greeting yet.
struct shm_newcomer {
    unique_fd socket;
    shm_stranger who;
    clock::time_point patience;  ///< Deadline of the greeting.
    shm_watch watch{shm_watch::kind::newcomer, this};
};

/// Listening socket and pending handshakes.
///
/// Threads: the port's thread.
class shm_door {
public:
    /// Limit of pending handshakes; further connections wait in the kernel's backlog.
    static constexpr std::size_t max_newcomers = 256;

    shm_door() noexcept = default;  ///< Does not listen.

    /// Listens at `name`, or at a random name if it is empty.
    /// Failure: `in_use` if a live process has the name.
    static result<shm_door> open(std::string_view name);

    bool is_open() const noexcept { return static_cast<bool>(socket_); }
    int fd() const noexcept { return socket_.get(); }
    const std::string& name() const noexcept { return name_; }
    bool is_crowded() const noexcept { return newcomers_.size() >= max_newcomers; }
    bool is_empty() const noexcept { return newcomers_.empty(); }

    /// Accepts the next connection of the same user. nullptr: none is waiting, is_crowded(), or out
    /// of descriptors or memory.
    shm_newcomer* let_in(clock::time_point patience) noexcept;
    /// The handshake is complete, or the connection is dropped.
    void dismiss(shm_newcomer& who) noexcept;
    /// Drops connections whose deadline was before `now`.
    void dismiss_late(clock::time_point now) noexcept;

private:
    unique_fd accept_one() noexcept;

    std::string name_;
    unique_fd socket_;
    unique_fd spare_;  // Released briefly if descriptors run out: see accept_one().
    std::vector<std::unique_ptr<shm_newcomer>> newcomers_;
};

}  // namespace amalgam::detail
