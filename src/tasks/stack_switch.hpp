#pragma once

#include <cstddef>

#if !defined(__x86_64__) || !defined(__ELF__)
#include <boost/context/detail/fcontext.hpp>
#endif

namespace amalgam::detail {

/// A call stack that is not running: its stack pointer, below which lie its saved registers.
using suspended_stack = void*;

/// What a stack learns when it is switched to.
struct arrival {
    suspended_stack from;
    void* data;  ///< From whoever switched.
};

#if defined(__x86_64__) && defined(__ELF__)

// Our own on x86-64, see docs/decisions/0004-own-stack-switch.md. A suspended stack has, from its
// pointer up: MXCSR and the x87 control word, r12, r13, r14, r15, rbx, rbp, where to go on.

/// Switches to `to`, which gets `data`. Returns when somebody switches back.
///
/// The way on is pushed by hand and jumped to, not called and returned from: the processor
/// predicts a return by the calls it saw, which are those of the other stack. Unbalanced, it
/// would mispredict every return that follows. The control words are compared, not loaded:
/// programs that change them are few, and loading them stalls.
///
/// The .cfi lines tell unwinders where each stack goes on, by the frame described above, for a
/// signal may come at any instruction: see running_trace.hpp. By number: rbx is 3, rbp 6, rsp 7.
[[gnu::always_inline]] inline arrival switch_stack(suspended_stack to, void* data) noexcept {
    suspended_stack from;
    asm volatile(
        "leaq 1f(%%rip), %%rax\n\t"
        "pushq %%rax\n\t"
        ".cfi_remember_state\n\t"
        ".cfi_def_cfa 7, 8\n\t"
        ".cfi_same_value 3\n\t"
        ".cfi_same_value 6\n\t"
        ".cfi_same_value 12\n\t"
        ".cfi_same_value 13\n\t"
        ".cfi_same_value 14\n\t"
        ".cfi_same_value 15\n\t"
        "leaq -0x38(%%rsp), %%rsp\n\t"
        ".cfi_def_cfa_offset 0x40\n\t"
        "stmxcsr (%%rsp)\n\t"
        "fnstcw 4(%%rsp)\n\t"
        "movq %%r12, 0x08(%%rsp)\n\t"
        "movq %%r13, 0x10(%%rsp)\n\t"
        "movq %%r14, 0x18(%%rsp)\n\t"
        "movq %%r15, 0x20(%%rsp)\n\t"
        "movq %%rbx, 0x28(%%rsp)\n\t"
        "movq %%rbp, 0x30(%%rsp)\n\t"
        "movl (%%rsp), %%ecx\n\t"
        "movzwl 4(%%rsp), %%r8d\n\t"
        "movq %%rsp, %%rax\n\t"
        "movq %%rdi, %%rsp\n\t"
        ".cfi_offset 12, -0x38\n\t"
        ".cfi_offset 13, -0x30\n\t"
        ".cfi_offset 14, -0x28\n\t"
        ".cfi_offset 15, -0x20\n\t"
        ".cfi_offset 3, -0x18\n\t"
        ".cfi_offset 6, -0x10\n\t"
        "cmpl (%%rsp), %%ecx\n\t"
        "jne 2f\n\t"
        "cmpw 4(%%rsp), %%r8w\n\t"
        "jne 2f\n"
        "3:\n\t"
        "movq 0x08(%%rsp), %%r12\n\t"
        "movq 0x10(%%rsp), %%r13\n\t"
        "movq 0x18(%%rsp), %%r14\n\t"
        "movq 0x20(%%rsp), %%r15\n\t"
        "movq 0x28(%%rsp), %%rbx\n\t"
        "movq 0x30(%%rsp), %%rbp\n\t"
        "movq 0x38(%%rsp), %%r8\n\t"
        "leaq 0x40(%%rsp), %%rsp\n\t"
        ".cfi_def_cfa_offset 0\n\t"  // the frame is still there, below
        "jmp *%%r8\n"
        "2:\n\t"
        ".cfi_def_cfa_offset 0x40\n\t"
        "ldmxcsr (%%rsp)\n\t"
        "fldcw 4(%%rsp)\n\t"
        "jmp 3b\n"
        ".cfi_restore_state\n\t"
        "nop\n"  // never run: unwinders look up the byte before the one where a stack goes on
        "1:"
        : "=&a"(from), "+D"(to), "+S"(data)
        :
        : "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3",
          "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
          "xmm14", "xmm15", "st", "st(1)", "st(2)", "st(3)", "st(4)", "st(5)", "st(6)", "st(7)"
#if defined(__AVX512F__)
          ,
          "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
          "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5",
          "k6", "k7"
#endif
    );
    return {from, data};
}

/// A stack, ending below `top`, on which `entry` begins at the first switch to it, and never
/// returns.
suspended_stack make_stack(void* top, std::size_t bytes, void (*entry)(arrival)) noexcept;

#else

inline arrival switch_stack(suspended_stack to, void* data) noexcept {
    const auto back = boost::context::detail::jump_fcontext(to, data);
    return {back.fctx, back.data};
}

inline suspended_stack make_stack(void* top, std::size_t bytes, void (*entry)(arrival)) noexcept {
    // Both are two pointers, passed and returned alike.
    return boost::context::detail::make_fcontext(
        top, bytes, reinterpret_cast<void (*)(boost::context::detail::transfer_t)>(entry));
}

#endif

}  // namespace amalgam::detail
