#pragma once

#include <cstring>
#include <type_traits>

#include <cxxabi.h>

#include "tasks/stacks/sanitizer.hpp"
#include "tasks/stacks/switch.hpp"

#ifdef _LIBCPP_VERSION
// libc++abi has it, as the ABI wants, but no header of it says so.
namespace __cxxabiv1 {
struct __cxa_eh_globals;
extern "C" __cxa_eh_globals* __cxa_get_globals() noexcept;
}  // namespace __cxxabiv1
#endif

namespace amalgam::detail {

/// The runtime's per-thread exception state: which exceptions are being handled. It belongs to a
/// call stack, so it is switched with it; otherwise a ULT that yields inside a catch block would
/// end another ULT's exception.
struct exception_state {
    void* caught = nullptr;
    unsigned int uncaught = 0;

    bool any() const noexcept { return caught != nullptr || uncaught != 0; }

    /// The calling thread's instance.
    static exception_state* of_thread() noexcept {
        // Itanium C++ ABI 2.2.2: these two members, in this order.
        return reinterpret_cast<exception_state*>(abi::__cxa_get_globals());
    }
};

class ult_core;

/// A suspended call stack.
struct call_stack {
    suspended_stack stack;      // first: found by its address, see of()
    ult_core* owner = nullptr;  ///< Null: a stream's loop.
    [[no_unique_address]] sanitizer_context sanitizer;

    static call_stack& of(const arrival& here) noexcept {
        return *reinterpret_cast<call_stack*>(here.place);
    }
};
static_assert(std::is_standard_layout_v<call_stack>);

}  // namespace amalgam::detail
