#pragma once

#include <cstddef>

#include "tasks/stacks/suspended_stack.hpp"

namespace amalgam::detail {

// Our own switch for x86-64, see docs/decisions/0004-own-stack-switch.md. At its pointer a
// suspended stack holds rbp, then the address to resume at. The switching function has saved the
// other registers as any function does.

/// Switches to `to`, passing `data`, and saves the caller's stack in `from`. Returns when someone
/// switches back, with the data passed then.
///
/// The resume address is pushed by hand and jumped to, without call and return: the processor
/// predicts returns by the calls it saw, which were those of the other stack, so an unbalanced
/// return would mispredict every later one. Arguments are passed in registers: reading memory that
/// was just written takes longer than all of this.
///
/// Floating-point control is switched too, but reading MXCSR stalls. So it is always loaded, and
/// read only if the x87 control word has changed, as <cfenv> changes both. A change of MXCSR alone,
/// by intrinsics, is lost here unless written to `from.floats` before.
///
/// The .cfi lines tell unwinders where each stack resumes, using the frame described above, because
/// a signal may arrive at any instruction: see running_trace.hpp. Register numbers: rbx is 3, rbp
/// 6, rsp 7.
[[gnu::always_inline]] inline arrival switch_stack(suspended_stack& from, suspended_stack& to,
                                                   void* data) noexcept {
    arrival here{&to, data};
    suspended_stack* left = &from;  // who switches back leaves its own there
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
        "nop\n"  // never run: unwinders look up the byte before the resume address
        "1:"
        : "+D"(here.place), "+S"(here.data), "+d"(left)
        :
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

// Layout assumed by switch_stack().
static_assert(offsetof(suspended_stack, floats) == 8 && offsetof(float_control, x87) == 4 &&
              offsetof(float_control, scratch) == 6);

}  // namespace amalgam::detail
