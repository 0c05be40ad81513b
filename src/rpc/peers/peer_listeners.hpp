#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/peer_lost.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>

namespace amalgam::detail {

class engine_context;
class peer_listeners;

/// One subscription: the function, and what prevents calls after its end.
class peer_listener {
public:
    using function = std::function<void(const peer&, status)>;

    peer_listener(std::weak_ptr<peer_listeners> list, function what)
        : list_(std::move(list)), what_(std::move(what)) {}

    /// Runs in its own ULT, which logs exceptions of the function.
    void call(const peer& who, status why);
    void end() noexcept;

private:
    std::weak_ptr<peer_listeners> list_;
    function what_;
    recursive_mutex calling_;
    std::atomic<bool> ended_{false};
};

/// Subscriptions to lost peers.
///
/// Threads: any, except tell().
class peer_listeners : public std::enable_shared_from_this<peer_listeners> {
public:
    explicit peer_listeners(engine_context& of) noexcept : of_(&of) {}

    peer_lost_subscription add(peer_listener::function what);
    void remove(const peer_listener& which) noexcept;
    /// From the engine's stream: each function will run soon, and once.
    void tell(const peer& who, status why) noexcept;
    /// The engine stops: no further calls.
    void close() noexcept;
    /// The engine's streams have ended.
    void forget_engine() noexcept;
    /// Whether the caller can wait for a ULT of the engine without deadlock.
    bool may_wait() noexcept;

private:
    std::mutex lock_;
    engine_context* of_;  // Null: the engine has ended.
    bool closed_ = false;
    std::vector<std::shared_ptr<peer_listener>> all_;
};

}  // namespace amalgam::detail
