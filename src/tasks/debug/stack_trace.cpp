#include "tasks/debug/stack_trace.hpp"

#include <cstdlib>
#include <memory>

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unwind.h>

#if defined(AMALGAM_OWN_STACK_SWITCH)

// amalgam_call_below(stack, act, with): calls act(with), and tells unwinders that the caller of
// that is the suspended stack, whose frame has a form that unwind tables can describe, see
// stacks/switch.hpp. So it switches to no stack and writes nothing on that one.
#if defined(__x86_64__)
asm(R"(
    .pushsection .text
    .type amalgam_call_below, @function
    .hidden amalgam_call_below
amalgam_call_below:
    .cfi_startproc
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    .cfi_remember_state
    movq %rdi, %rbx
    movq %rdx, %rdi
    .cfi_def_cfa rbx, 0x10
    .cfi_offset rbp, -0x10
    .cfi_same_value rbx
    call *%rsi
    .cfi_restore_state
    popq %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    ret
    .cfi_endproc
    .size amalgam_call_below, .-amalgam_call_below
    .popsection
)");
#else
asm(R"(
    .pushsection .text
    .p2align 2
    .type amalgam_call_below, %function
    .hidden amalgam_call_below
amalgam_call_below:
    .cfi_startproc
    stp x29, x30, [sp, #-32]!
    .cfi_def_cfa_offset 32
    .cfi_offset x29, -32
    .cfi_offset x30, -24
    str x19, [sp, #16]
    .cfi_offset x19, -16
    .cfi_remember_state
    mov x19, x0
    mov x0, x2
    .cfi_def_cfa x19, 16
    .cfi_offset x29, -16
    .cfi_offset x30, -8
    .cfi_same_value x19
    blr x1
    .cfi_restore_state
    ldr x19, [sp, #16]
    ldp x29, x30, [sp], #32
    .cfi_restore x19
    .cfi_restore x29
    .cfi_restore x30
    .cfi_def_cfa_offset 0
    ret
    .cfi_endproc
    .size amalgam_call_below, .-amalgam_call_below
    .popsection
)");
#endif

extern "C" void amalgam_call_below(const void* stack, void (*act)(void*), void* with);

namespace amalgam::detail {

namespace {

// GCC's unwinder for AArch64 has the address of the saved registers for the frame of a signal, and
// the stack pointer among them; in other frames it has none.
std::uintptr_t stack_pointer_in(_Unwind_Context* frame,
                                [[maybe_unused]] bool interrupted) noexcept {
#if defined(__aarch64__)
    constexpr int number_of_sp = 31;
    if (interrupted) return static_cast<std::uintptr_t>(_Unwind_GetGR(frame, number_of_sp));
#endif
    return static_cast<std::uintptr_t>(_Unwind_GetCFA(frame));
}

struct walk {
    std::uintptr_t low, high;
    std::span<std::uintptr_t> into;
    std::size_t count = 0;

    static _Unwind_Reason_Code step(_Unwind_Context* frame, void* self) noexcept {
        auto& mine = *static_cast<walk*>(self);
        int interrupted = 0;  // before that instruction, not after a call
        const auto address = static_cast<std::uintptr_t>(_Unwind_GetIPInfo(frame, &interrupted));
        const std::uintptr_t sp = stack_pointer_in(frame, interrupted != 0);
        const bool there = sp > mine.low && sp <= mine.high;
        if (!there) return mine.count == 0 ? _URC_NO_REASON : _URC_END_OF_STACK;
        if (address == 0 || mine.count == mine.into.size()) return _URC_END_OF_STACK;
        mine.into[mine.count++] = interrupted != 0 ? address + 1 : address;
        return _URC_NO_REASON;
    }
};

}  // namespace

std::size_t trace_suspended(const void* where, const void* top,
                            std::span<std::uintptr_t> into) noexcept {
    walk mine{reinterpret_cast<std::uintptr_t>(where), reinterpret_cast<std::uintptr_t>(top), into};
    amalgam_call_below(
        where, [](void* with) { _Unwind_Backtrace(&walk::step, with); }, &mine);
    return mine.count;
}

std::size_t trace_caller(const void* stack_pointer, const void* top,
                         std::span<std::uintptr_t> into) noexcept {
    walk mine{reinterpret_cast<std::uintptr_t>(stack_pointer) - 1,
              reinterpret_cast<std::uintptr_t>(top), into};
    _Unwind_Backtrace(&walk::step, &mine);
    return mine.count;
}

}  // namespace amalgam::detail

#else

namespace amalgam::detail {

std::size_t trace_suspended(const void*, const void*, std::span<std::uintptr_t>) noexcept {
    return 0;
}

std::size_t trace_caller(const void*, const void*, std::span<std::uintptr_t>) noexcept {
    return 0;
}

}  // namespace amalgam::detail

#endif

namespace amalgam::detail {

std::string describe_address(std::uintptr_t address) {
    Dl_info found{};
    // A return address may lie past the end of its function.
    if (::dladdr(reinterpret_cast<void*>(address - 1), &found) == 0 || found.dli_fname == nullptr)
        return "unknown";
    const std::string file = found.dli_fname;
    const auto at = fmt::format("{}+{:#x}", file.substr(file.rfind('/') + 1),
                                address - reinterpret_cast<std::uintptr_t>(found.dli_fbase));
    if (found.dli_sname == nullptr) return at;
    int failed = 0;
    const std::unique_ptr<char, void (*)(void*)> readable(
        abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &failed), std::free);
    return fmt::format("{} ({})", readable ? readable.get() : found.dli_sname, at);
}

}  // namespace amalgam::detail
