#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "fabric/limits.hpp"
#include "fabric/transports/shm/hello.hpp"
#include "fabric/transports/shm/users.hpp"
#include "fabric/transports/shm/watch.hpp"

namespace amalgam::detail {

/// An accepted connection without a hello yet.
struct shm_pending {
    unique_fd socket;
    shm_credentials who;
    clock::time_point deadline;  ///< Deadline of the hello.
    shm_watch watch{shm_watch::kind::pending, this};
};

/// Listening socket and pending handshakes.
///
/// Threads: the port's thread.
class shm_listener {
public:
    shm_listener() noexcept = default;  ///< Does not listen.

    /// Listens at `name`, or at a random name if it is empty, for this user and `others`.
    /// Failure: `in_use` if a live process has the name.
    static result<shm_listener> open(std::string_view name, const shm_users& others);

    bool is_open() const noexcept { return static_cast<bool>(socket_); }
    int fd() const noexcept { return socket_.get(); }
    const std::string& name() const noexcept { return name_; }
    bool is_crowded() const noexcept { return pending_.size() >= limits::shm_max_pending; }
    bool is_empty() const noexcept { return pending_.empty(); }

    /// Connections of users who are not let in, so far.
    std::size_t refused() const noexcept { return refused_; }

    /// Accepts the next connection of a user who is let in. nullptr: none is waiting, is_crowded(),
    /// out of descriptors or memory, or it has looked at `most`, from which it takes what it has.
    shm_pending* accept(clock::time_point deadline, int& most) noexcept;
    /// The handshake is complete, or the connection is dropped.
    void remove(shm_pending& who) noexcept;
    /// Drops connections whose deadline was before `now`.
    void drop_expired(clock::time_point now) noexcept;

private:
    unique_fd accept_one() noexcept;
    bool lets_in(const shm_credentials&) const noexcept;
    bool is_crowded_by_others() const noexcept;

    std::string name_;
    unique_fd socket_;
    unique_fd spare_;  // Released briefly if descriptors run out: see accept_one().
    std::vector<std::unique_ptr<shm_pending>> pending_;
    shm_users others_;
    std::size_t refused_ = 0;
};

}  // namespace amalgam::detail
