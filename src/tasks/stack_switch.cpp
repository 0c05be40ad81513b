#include "tasks/stack_switch.hpp"

#if defined(__x86_64__) && defined(__ELF__)

#include <cstdint>
#include <cstring>

// The first code of a new stack: hands what came with the switch to the entry function, which
// begin_stack() left in rbp. Its caller is nobody: the unwinder ends here. It looks up the byte
// before the one where a stack goes on, so a stack that has not begun goes on behind a nop.
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

extern "C" void amalgam_begin_stack();

namespace amalgam::detail {

float_control float_control::now() noexcept {
    float_control read;
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(read.mxcsr), "=m"(read.x87));
    constexpr std::uint32_t exceptions_seen = 0x3f;
    read.mxcsr &= ~exceptions_seen;
    return read;
}

suspended_stack begin_stack(void* top, void (*entry)(arrival)) noexcept {
    struct frame {
        std::uint64_t rbp, rip;
    };
    const frame first{reinterpret_cast<std::uint64_t>(entry),
                      reinterpret_cast<std::uint64_t>(&amalgam_begin_stack)};
    // As before a call's push of 8 bytes, the stack is aligned to 16 where the frame ends.
    const auto end = reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15};
    return {std::memcpy(reinterpret_cast<void*>(end - sizeof first), &first, sizeof first),
            float_control::now()};
}

}  // namespace amalgam::detail

#endif
