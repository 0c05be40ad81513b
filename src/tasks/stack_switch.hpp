#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__x86_64__) || !defined(__ELF__)
#include <boost/context/detail/fcontext.hpp>
#endif

namespace amalgam::detail {

/// How floating-point numbers are rounded and which exceptions trap: MXCSR and the x87 control
/// word. Unused where Boost switches.
struct float_control {
    std::uint32_t mxcsr = 0;
    std::uint16_t x87 = 0;
    std::uint16_t scratch = 0;

    /// That of the calling thread now.
    static float_control now() noexcept;
    /// Not what somebody else has set, but what most programs have: that of the calling thread.
    void make_usual() noexcept {
        if (!is_usual()) *this = now();
    }
    bool is_usual() const noexcept { return x87 == usual_x87; }
    static constexpr std::uint16_t usual_x87 = 0x37f;  // as the ABI begins a program
};

/// A call stack that is not running.
struct suspended_stack {
    void* pointer = nullptr;  ///< Its registers lie there.
    float_control floats;     ///< It goes on with this.
};

/// Who arrives on a stack learns from whoever switched to it.
struct arrival {
    suspended_stack* place;  ///< Where this stack was kept.
    void* data;
};

#if defined(__x86_64__) && defined(__ELF__)

// Our own on x86-64, see docs/decisions/0004-own-stack-switch.md. A suspended stack has, from its
// pointer up: rbp, where to go on. The function that switches has saved the other registers as any
// function does.

/// Switches to `to`, which gets `data`, and keeps the caller's stack in `from`. Returns when
/// somebody switches back, with what that one gave.
///
/// The way on is pushed by hand and jumped to, not called and returned from: the processor
/// predicts a return by the calls it saw, which are those of the other stack. Unbalanced, it
/// would mispredict every return that follows. What arrives does so in registers: memory just
/// written takes longer to read than all this.
///
/// Floating-point control goes with the stack, but reading MXCSR stalls. So it is loaded always,
/// and read only when the x87 control word has changed, as <cfenv> changes both. A change of MXCSR
/// alone, by intrinsics, ends here, unless it was written to `from.floats` before.
///
/// The .cfi lines tell unwinders where each stack goes on, by the frame described above, for a
/// signal may come at any instruction: see running_trace.hpp. By number: rbx is 3, rbp 6, rsp 7.
[[gnu::always_inline]] inline arrival switch_stack(suspended_stack& from, suspended_stack& to,
                                                   void* data) noexcept {
    arrival here{&to, data};
    asm volatile(
        "fnstcw 14(%%rdx)\n\t"
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
        "pushq %%rbp\n\t"
        ".cfi_def_cfa_offset 16\n\t"
        "movzwl 14(%%rdx), %%ecx\n\t"
        "movq %%rsp, (%%rdx)\n\t"
        "movq (%%rdi), %%rsp\n\t"
        ".cfi_offset 6, -16\n\t"
        "cmpw 12(%%rdx), %%cx\n\t"
        "jne 2f\n"
        "3:\n\t"
        "ldmxcsr 8(%%rdi)\n\t"
        "cmpw 12(%%rdi), %%cx\n\t"
        "jne 4f\n"
        "5:\n\t"
        "movq (%%rsp), %%rbp\n\t"
        "movq 8(%%rsp), %%rax\n\t"
        "leaq 16(%%rsp), %%rsp\n\t"
        ".cfi_def_cfa_offset 0\n\t"  // the frame is still there, below
        "jmp *%%rax\n"
        "2:\n\t"
        ".cfi_def_cfa_offset 16\n\t"
        "stmxcsr 8(%%rdx)\n\t"
        "movw %%cx, 12(%%rdx)\n\t"
        "jmp 3b\n"
        "4:\n\t"
        "fldcw 12(%%rdi)\n\t"
        "jmp 5b\n"
        ".cfi_restore_state\n\t"
        "nop\n"  // never run: unwinders look up the byte before the one where a stack goes on
        "1:"
        : "+D"(here.place), "+S"(here.data)
        : "d"(&from)
        : "rax", "rbx", "rcx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc",
          "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "st", "st(1)", "st(2)", "st(3)", "st(4)",
          "st(5)", "st(6)", "st(7)"
#if defined(__AVX512F__)
          ,
          "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",
          "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5",
          "k6", "k7"
#endif
    );
    return here;
}

// What switch_stack() counts on.
static_assert(offsetof(suspended_stack, floats) == 8 && offsetof(float_control, x87) == 4 &&
              offsetof(float_control, scratch) == 6);

/// A stack, ending below `top`, on which `entry` begins at the first switch to it, and never
/// returns.
suspended_stack begin_stack(void* top, void (*entry)(arrival first)) noexcept;

template <void (*entry)(arrival first)>
suspended_stack make_stack(void* top, std::size_t) noexcept {
    return begin_stack(top, entry);
}

#else

inline float_control float_control::now() noexcept {
    return {};
}

/// What a stack is told by the one that was left for it.
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

template <void (*entry)(arrival first)>
suspended_stack make_stack(void* top, std::size_t bytes) noexcept {
    return {boost::context::detail::make_fcontext(
                top, bytes,
                [](boost::context::detail::transfer_t back) { entry(left_stack::arrived(back)); }),
            {}};
}

#endif

}  // namespace amalgam::detail
