#pragma once

#include <cstddef>

#include <boost/context/detail/fcontext.hpp>

#include "tasks/stacks/suspended_stack.hpp"

namespace amalgam::detail {

/// Passed by the previous stack to the one it switches to.
struct left_stack {
    suspended_stack& from;
    arrival there;

    static arrival arrived(boost::context::detail::transfer_t back) noexcept {
        const auto& left = *static_cast<left_stack*>(back.data);
        left.from.pointer = back.fctx;
        return left.there;
    }
};

inline arrival switch_stack(suspended_stack& from, suspended_stack& to, void* data) noexcept {
    left_stack mine{from, {&to, data}};
    return left_stack::arrived(boost::context::detail::jump_fcontext(to.pointer, &mine));
}

/// Prepares a stack that ends below `top`. The first switch to it calls `entry`, which never
/// returns.
template <void (*entry)(arrival first)>
suspended_stack make_stack(void* top, std::size_t bytes) noexcept {
    return {boost::context::detail::make_fcontext(
                top, bytes,
                [](boost::context::detail::transfer_t back) { entry(left_stack::arrived(back)); }),
            {}};
}

}  // namespace amalgam::detail
