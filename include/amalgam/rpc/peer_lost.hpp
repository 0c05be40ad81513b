#pragma once

#include <utility>

#include <amalgam/core/detail/memory.hpp>

namespace amalgam {

namespace detail {
class peer_listener;
}

/// Subscription to engine::on_peer_lost(); the function is called while this lives.
///
/// Owner:   the user; may outlive the engine.
/// Threads: like a plain value.
/// Failure: end() waits while the function runs, so do not call it holding anything the function
///          waits for. It does not wait inside the function, nor where it would deadlock or cannot
///          wait: outside a ULT on the thread of an engine's event loop or of a virtual-time
///          network, and in call_then() or an inline handler of another engine or in a tasklet.
class [[nodiscard]] peer_lost_subscription {
public:
    peer_lost_subscription() noexcept = default;  ///< Subscribed to nothing.
    explicit peer_lost_subscription(std::shared_ptr<detail::peer_listener> to) noexcept
        : to_(std::move(to)) {}
    peer_lost_subscription(peer_lost_subscription&&) noexcept = default;
    peer_lost_subscription& operator=(peer_lost_subscription&& other) noexcept {
        peer_lost_subscription(std::move(other)).swap(*this);
        return *this;
    }
    ~peer_lost_subscription() { end(); }
    void swap(peer_lost_subscription& other) noexcept { to_.swap(other.to_); }

    /// Ends the subscription: the function is not running and will not run again. Idempotent.
    void end() noexcept;

private:
    std::shared_ptr<detail::peer_listener> to_;
};

}  // namespace amalgam
