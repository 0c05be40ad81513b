#include "tasks/stacks/switch.hpp"

#if defined(AMALGAM_OWN_STACK_SWITCH)

#include <cstdint>
#include <cstring>

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
#endif

// Hidden here, too: with an entry in the global offset table, lld 14 links it wrongly on AArch64.
extern "C" [[gnu::visibility("hidden")]] void amalgam_begin_stack();

namespace amalgam::detail {

#if defined(__x86_64__)
float_control float_control::now() noexcept {
    float_control read;
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(read.mxcsr), "=m"(read.x87));
    constexpr std::uint32_t exceptions_seen = 0x3f;
    read.mxcsr &= ~exceptions_seen;
    return read;
}
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
