#pragma once

#include <memory>
#include <utility>

namespace amalgam {

namespace detail {
class peer_listener;
}

/// Keeps the function of engine::on_peer_lost() called, while it lives.
///
/// Owner:   the user; it may outlive the engine.
/// Threads: like a plain value.
/// Failure: end() waits while the function runs, so it must not be called with what that waits for.
///          Inside of the function it does not wait, nor where that would be for ever: on the
///          thread of an engine's loop or of a network in virtual time, outside of a ULT.
class [[nodiscard]] peer_lost_subscription {
public:
    peer_lost_subscription() noexcept = default;  ///< To nothing.
    explicit peer_lost_subscription(std::shared_ptr<detail::peer_listener> to) noexcept
        : to_(std::move(to)) {}
    peer_lost_subscription(peer_lost_subscription&&) noexcept = default;
    peer_lost_subscription& operator=(peer_lost_subscription&& other) noexcept {
        peer_lost_subscription(std::move(other)).swap(*this);
        return *this;
    }
    ~peer_lost_subscription() { end(); }
    void swap(peer_lost_subscription& other) noexcept { to_.swap(other.to_); }

    /// The function is not called any more, and does not run. Idempotent.
    void end() noexcept;

private:
    std::shared_ptr<detail::peer_listener> to_;
};

}  // namespace amalgam
