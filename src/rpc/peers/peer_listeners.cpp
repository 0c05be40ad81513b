#include "rpc/peers/peer_listeners.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/log.hpp>
#include <amalgam/tasks/ult.hpp>

#include "rpc/context/engine_context.hpp"

namespace amalgam {

void peer_lost_subscription::end() noexcept {
    if (to_ == nullptr) return;
    to_->end();
    to_.reset();
}

namespace detail {

void peer_listener::call(const peer& who, status why) {
    const std::lock_guard one(calling_);
    if (!ended_.load(std::memory_order_relaxed)) what_(who, why);
}

void peer_listener::end() noexcept {
    ended_.store(true, std::memory_order_relaxed);
    const std::shared_ptr<peer_listeners> list = list_.lock();
    if (list == nullptr) return;
    list->remove(*this);
    const cancel_later it_must_not_throw;
    // Locked at once if free or held by the caller. A call that still runs when the engine ends may
    // never return.
    constexpr std::chrono::milliseconds between_looks{50};
    while (list->may_wait()) {
        if (calling_.try_lock_for(between_looks)) return calling_.unlock();
    }
}

peer_lost_subscription peer_listeners::add(peer_listener::function what) {
    auto fresh = std::make_shared<peer_listener>(weak_from_this(), std::move(what));
    const std::lock_guard hold(lock_);
    all_.push_back(fresh);
    return peer_lost_subscription(std::move(fresh));
}

void peer_listeners::remove(const peer_listener& which) noexcept {
    std::shared_ptr<peer_listener> last;  // Destroyed without a lock: it is user code.
    const std::lock_guard hold(lock_);
    const auto at = std::find_if(all_.begin(), all_.end(),
                                 [&](const auto& each) { return each.get() == &which; });
    if (at == all_.end()) return;
    last = std::move(*at);
    all_.erase(at);
}

void peer_listeners::tell(const peer& who, status why) noexcept {
    const std::lock_guard hold(lock_);
    if (closed_) return;
    for (const auto& each : all_) {
        try {
            post(of_->streams().handlers(), [each, who, why] { each->call(who, why); },
                 {.name = "on_peer_lost"});
        } catch (const std::exception& wrong) {
            log(log_level::error, "rpc", "cannot call a function registered with on_peer_lost()",
                {{"why", text_of(wrong)}});
        }
    }
}

void peer_listeners::close() noexcept {
    const std::lock_guard hold(lock_);
    closed_ = true;
}

void peer_listeners::forget_engine() noexcept {
    const std::lock_guard hold(lock_);
    of_ = nullptr;
}

bool peer_listeners::may_wait() noexcept {
    const std::lock_guard hold(lock_);
    if (of_ == nullptr || !of_->may_hop()) return false;
    try {
        of_->check_may_wait();
        return true;
    } catch (const error&) {
        return false;
    }
}

}  // namespace detail

}  // namespace amalgam
