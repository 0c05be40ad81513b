#pragma once

#include <coroutine>
#include <tuple>
#include <utility>

#include <amalgam/tasks/detail/coroutine_unit.hpp>
#include <amalgam/tasks/detail/wait_list.hpp>

namespace amalgam::detail {

/// A coroutine's wait for a primitive, which has a private `bool enlist(wait_node&, …)`. False: the
/// request was granted. True: the node is listed; unparking it grants the request.
///
/// Owner: the awaiting coroutine's frame.
/// Cost:  as for a ULT, with a call in place of the switch.
template <typename Primitive, typename... Arguments>
class [[nodiscard]] wait_operation {
public:
    explicit wait_operation(Primitive& what, Arguments... arguments) noexcept
        : what_(what), arguments_(arguments...) {}
    wait_operation(const wait_operation&) = delete;
    wait_operation& operator=(const wait_operation&) = delete;

    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> who) {
        unit_.prepare(who);
        listed_ = std::apply(
            [this](auto... arguments) { return what_.enlist(node_, arguments...); }, arguments_);
        // Once parked, another thread may resume the coroutine and destroy this.
        return listed_ && node_.who.park_unit();
    }
    void await_resume() const noexcept {}

protected:
    /// Whether it had to queue, however briefly.
    bool was_listed() const noexcept { return listed_; }

private:
    Primitive& what_;
    bool listed_ = false;
    [[no_unique_address]] std::tuple<Arguments...> arguments_;
    coroutine_unit unit_;
    wait_node node_{unit_};
};

}  // namespace amalgam::detail
