#include "tasks/stacks/switch.hpp"

#if defined(AMALGAM_OWN_STACK_SWITCH)

#include <cstdint>
#include <cstring>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

// The first code on a new stack: passes the data of the switch to the entry function, which
// begin_stack() left in the frame pointer. It has no caller: unwinding ends here. The unwinder
// looks up the byte before a stack's resume address, so a new stack resumes after a nop.
#if defined(__x86_64__)
asm(R"(
    .pushsection .text
    .type amalgam_begin_stack, @function
    .hidden amalgam_begin_stack
    .cfi_startproc
    .cfi_undefined rip
    nop
amalgam_begin_stack:
    movq %rbp, %rax
    xorl %ebp, %ebp
    call *%rax
    ud2
    .cfi_endproc
    .size amalgam_begin_stack, .-amalgam_begin_stack
    .popsection
)");
#else
// The hint is `bti j`: this is jumped to.
asm(R"(
    .pushsection .text
    .p2align 2
    .type amalgam_begin_stack, %function
    .hidden amalgam_begin_stack
    .cfi_startproc
    .cfi_undefined x30
    nop
amalgam_begin_stack:
    hint #36
    mov x9, x29
    mov x29, xzr
    mov x30, xzr
    blr x9
    brk #1
    .cfi_endproc
    .size amalgam_begin_stack, .-amalgam_begin_stack
    .popsection
)");

// What AAPCS64 calls __arm_za_disable, which only the newest runtimes have. By numbers what older
// assemblers do not know. TPIDR2_EL0 has the address of: where to save, how many slices, zeros.
asm(R"(
    .pushsection .text
    .p2align 2
    .type amalgam_put_za_away, %function
    .globl amalgam_put_za_away
    .hidden amalgam_put_za_away
    .cfi_startproc
amalgam_put_za_away:
    hint #34               // bti c
    mrs x9, S3_3_C13_C0_5  // TPIDR2_EL0
    cbz x9, 4f
    ldrh w10, [x9, #10]
    ldr w11, [x9, #12]
    orr w10, w10, w11
    cbnz w10, 3f           // a form that this does not know
    ldr x11, [x9]
    ldrh w10, [x9, #8]
    cbz x11, 2f
    cbz w10, 2f
    .inst 0x04bf582d       // rdsvl x13, #1
    mov w12, wzr
1:
    .inst 0xe1200160       // str za[w12, 0], [x11]
    add x11, x11, x13
    add w12, w12, #1
    cmp w12, w10
    b.lo 1b
2:
    msr S3_3_C13_C0_5, xzr
    .inst 0xd503447f       // smstop za
    ret
3:
    brk #1
4:
    ret
    .cfi_endproc
    .size amalgam_put_za_away, .-amalgam_put_za_away
    .popsection
)");
#endif

// Hidden here, too: with an entry in the global offset table, lld 14 links it wrongly on AArch64.
extern "C" [[gnu::visibility("hidden")]] void amalgam_begin_stack();

namespace amalgam::detail {

#if !defined(__x86_64__)
bool has_za = (::getauxval(AT_HWCAP2) & (1ul << 23)) != 0;  // HWCAP2_SME
#endif

suspended_stack begin_stack(void* top, void (*entry)(arrival)) noexcept {
    struct frame {
        std::uint64_t frame_pointer, resumes_at;
    };
    const frame first{reinterpret_cast<std::uint64_t>(entry),
                      reinterpret_cast<std::uint64_t>(&amalgam_begin_stack)};
    // The frame ends 16-byte aligned, as a stack is before a call.
    const auto end = reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15};
    return {std::memcpy(reinterpret_cast<void*>(end - sizeof first), &first, sizeof first),
            float_control::now()};
}

}  // namespace amalgam::detail

#endif
