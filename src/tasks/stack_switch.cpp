#include "tasks/stack_switch.hpp"

#if defined(__x86_64__) && defined(__ELF__)

#include <cstdint>
#include <cstring>

// The first code of a new stack: hands what came with the switch to the entry function, which
// make_stack() left in rbx. Its caller is nobody: the unwinder ends here. It looks up the byte
// before the one where a stack goes on, so a stack that has not begun goes on behind a nop.
asm(R"(
    .pushsection .text
    .type amalgam_begin_stack, @function
    .hidden amalgam_begin_stack
    .cfi_startproc
    .cfi_undefined rip
    nop
amalgam_begin_stack:
    movq %rax, %rdi
    call *%rbx
    ud2
    .cfi_endproc
    .size amalgam_begin_stack, .-amalgam_begin_stack
    .popsection
)");

extern "C" void amalgam_begin_stack();

namespace amalgam::detail {

suspended_stack make_stack(void* top, std::size_t, void (*entry)(arrival)) noexcept {
    struct frame {
        std::uint32_t mxcsr;
        std::uint16_t x87_control;
        std::uint16_t unused;
        std::uint64_t r12, r13, r14, r15, rbx, rbp, rip;
    };
    static_assert(sizeof(frame) == 0x40);
    frame first{};
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(first.mxcsr), "=m"(first.x87_control));
    first.rbx = reinterpret_cast<std::uint64_t>(entry);
    first.rip = reinterpret_cast<std::uint64_t>(&amalgam_begin_stack);
    // As after a call's push of 8 bytes, the stack is aligned to 16 where the frame ends.
    const auto end = reinterpret_cast<std::uintptr_t>(top) & ~std::uintptr_t{15};
    return std::memcpy(reinterpret_cast<void*>(end - sizeof first), &first, sizeof first);
}

}  // namespace amalgam::detail

#endif
