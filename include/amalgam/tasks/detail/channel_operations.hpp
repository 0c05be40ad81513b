#pragma once

#include <coroutine>
#include <optional>
#include <utility>

#include <amalgam/tasks/detail/channel_core.hpp>
#include <amalgam/tasks/detail/coroutine_unit.hpp>

namespace amalgam::detail {

/// A coroutine's push or pop. Lives in the awaiting coroutine's frame.
template <typename T>
class channel_operation {
public:
    explicit channel_operation(channel_core<T>& where) noexcept : where_(where) {}
    channel_operation(const channel_operation&) = delete;
    channel_operation& operator=(const channel_operation&) = delete;

protected:
    using step = typename channel_core<T>::step;

    void prepare(std::coroutine_handle<> who) noexcept { unit_.prepare(who); }
    /// For await_suspend(). Once parked, another thread may resume the coroutine and destroy this.
    bool park() noexcept { return now_ == step::must_wait && node_.who.park_unit(); }

    channel_core<T>& where_;
    coroutine_unit unit_;
    typename channel_core<T>::node node_{unit_};
    step now_ = step::must_wait;
};

template <typename T>
class [[nodiscard]] channel_push : channel_operation<T> {
    using typename channel_operation<T>::step;

public:
    channel_push(channel_core<T>& where, T&& item)
        : channel_operation<T>(where), item_(std::move(item)) {
        this->node_.item = &item_;
    }
    bool await_ready() {
        this->now_ = this->where_.push(item_, nullptr);
        return this->now_ != step::must_wait;
    }
    bool await_suspend(std::coroutine_handle<> who) {
        this->prepare(who);
        this->now_ = this->where_.push(item_, &this->node_);
        return this->park();
    }
    void await_resume() const {
        if (this->now_ == step::closed) refuse_closed_channel();
        if (this->now_ == step::must_wait) channel_core<T>::check_pushed(this->node_);
    }

private:
    T item_;
};

template <typename T>
class [[nodiscard]] channel_pop : channel_operation<T> {
    using typename channel_operation<T>::step;

public:
    explicit channel_pop(channel_core<T>& where) noexcept : channel_operation<T>(where) {
        this->node_.place = &item_;
    }
    bool await_ready() {
        this->now_ = this->where_.pop(item_, nullptr);
        return this->now_ != step::must_wait;
    }
    bool await_suspend(std::coroutine_handle<> who) {
        this->prepare(who);
        this->now_ = this->where_.pop(item_, &this->node_);
        return this->park();
    }
    std::optional<T> await_resume() noexcept(std::is_nothrow_move_constructible_v<T>) {
        return std::move(item_);
    }

private:
    std::optional<T> item_;
};

}  // namespace amalgam::detail
