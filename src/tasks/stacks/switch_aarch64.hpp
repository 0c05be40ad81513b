#pragma once

#include <cstddef>

#include "tasks/stacks/suspended_stack.hpp"

namespace amalgam::detail {

// Our own switch for AArch64, see docs/decisions/0004-own-stack-switch.md. At its pointer a
// suspended stack holds x29, then the address to resume at: a frame record as AAPCS64 has it. The
// switching function has saved the other registers as any function does: x19 to x28, x30 and d8 to
// d15.

// Return addresses signed by -mbranch-protection=pac-ret are; the address to resume at is not.
#if defined(__ARM_FEATURE_PAC_DEFAULT)
#define AMALGAM_CFI_RESUME_ADDRESS_IS_NOT_SIGNED ".cfi_negate_ra_state\n\t"
#else
#define AMALGAM_CFI_RESUME_ADDRESS_IS_NOT_SIGNED
#endif

#if defined(__has_feature)
#if __has_feature(shadow_call_stack)
#error "no shadow call stack is switched with a ULT's: build without -fsanitize=shadow-call-stack"
#endif
#endif

/// Whether the processor has SME.
[[gnu::visibility("hidden")]] extern bool has_za;

/// Saves the calling thread's ZA for whom it waits there, if anyone, and turns it off.
/// Precondition: has_za.
extern "C" [[gnu::visibility("hidden")]] void amalgam_put_za_away() noexcept;

/// Switches to `to`, passing `data`, and saves the caller's stack in `from`. Returns when someone
/// switches back, with the data passed then.
///
/// SME's array ZA belongs to a thread, and who uses it may call any function while it is full:
/// TPIDR2_EL0 then says where the next user has to save it (AAPCS64, "lazy saving"). Another stack
/// may be the next user, or this one may go on in another thread, which has an array of its own. So
/// it is saved here, as swapcontext() does.
///
/// As on x86-64, what is resumed is jumped to, not returned to, so that the processor's list of
/// return addresses stays balanced, and arguments are passed in registers. The jump goes by x17 and
/// lands at a hint, which branch target identification (BTI) wants there.
///
/// FPCR is always read and saved; writing it stalls, so only another value is written. All that
/// <cfenv> and intrinsics set there stays with its stack.
///
/// The .cfi lines tell unwinders where each stack resumes, as a signal may arrive at any
/// instruction: see running_trace.hpp. There is no red zone: a frame is read in the instruction
/// that pops it. Register numbers: sp is 31, d8 to d15 are 72 to 79.
[[gnu::always_inline]] inline arrival switch_stack(suspended_stack& from, suspended_stack& to,
                                                   void* data) noexcept {
    if (has_za) [[unlikely]]
        amalgam_put_za_away();
    register suspended_stack* place asm("x0") = &to;
    register void* passed asm("x1") = data;
    register suspended_stack* left asm("x2") = &from;
    asm volatile(
        "mrs x10, fpcr\n\t"
        "adr x9, 1f\n\t"
        "stp x29, x9, [sp, #-16]!\n\t"
        ".cfi_remember_state\n\t" AMALGAM_CFI_RESUME_ADDRESS_IS_NOT_SIGNED
        ".cfi_def_cfa 31, 16\n\t"
        ".cfi_offset 29, -16\n\t"
        ".cfi_offset 30, -8\n\t"
        ".cfi_same_value 19\n\t"
        ".cfi_same_value 20\n\t"
        ".cfi_same_value 21\n\t"
        ".cfi_same_value 22\n\t"
        ".cfi_same_value 23\n\t"
        ".cfi_same_value 24\n\t"
        ".cfi_same_value 25\n\t"
        ".cfi_same_value 26\n\t"
        ".cfi_same_value 27\n\t"
        ".cfi_same_value 28\n\t"
        ".cfi_same_value 72\n\t"
        ".cfi_same_value 73\n\t"
        ".cfi_same_value 74\n\t"
        ".cfi_same_value 75\n\t"
        ".cfi_same_value 76\n\t"
        ".cfi_same_value 77\n\t"
        ".cfi_same_value 78\n\t"
        ".cfi_same_value 79\n\t"
        "str w10, [x2, #8]\n\t"
        "ldr w11, [x0, #8]\n\t"
        "mov x9, sp\n\t"
        "str x9, [x2]\n\t"
        "ldr x9, [x0]\n\t"
        "cmp w10, w11\n\t"
        "mov sp, x9\n\t"
        "b.ne 2f\n"
        "3:\n\t"
        "ldp x29, x17, [sp], #16\n\t"
        ".cfi_def_cfa_offset 0\n\t"
        ".cfi_same_value 29\n\t"
        ".cfi_register 30, 17\n\t"
        "br x17\n"
        "2:\n\t"
        ".cfi_def_cfa_offset 16\n\t"
        ".cfi_offset 29, -16\n\t"
        ".cfi_offset 30, -8\n\t"
        "msr fpcr, x11\n\t"
        "b 3b\n\t"
        ".cfi_restore_state\n\t"
        "nop\n"  // never run: unwinders look up the byte before the resume address
        "1:\n\t"
        "hint #36"  // bti j
        : "+r"(place), "+r"(passed), "+r"(left)
        :
        : "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
          "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30",
          "memory", "cc",
#if defined(__ARM_FEATURE_SVE)
          "z0", "z1", "z2", "z3", "z4", "z5", "z6", "z7", "z8", "z9", "z10", "z11", "z12", "z13",
          "z14", "z15", "z16", "z17", "z18", "z19", "z20", "z21", "z22", "z23", "z24", "z25", "z26",
          "z27", "z28", "z29", "z30", "z31", "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8",
          "p9", "p10", "p11", "p12", "p13", "p14", "p15"
#else
          "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
          "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26",
          "v27", "v28", "v29", "v30", "v31"
#endif
    );
    return {place, passed};
}

// Layout assumed by switch_stack().
static_assert(offsetof(suspended_stack, floats) == 8 && sizeof(float_control) == 4);

#undef AMALGAM_CFI_RESUME_ADDRESS_IS_NOT_SIGNED

}  // namespace amalgam::detail
