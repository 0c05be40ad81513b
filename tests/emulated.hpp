#pragma once

#include <cstdlib>

namespace amalgam {

/// Whether the program runs under qemu, as scripts/aarch64_tests has it: qemu knows only a part of
/// what the kernel can do for memory and for sockets.
inline bool is_emulated() noexcept {
    return std::getenv("QEMU_LD_PREFIX") != nullptr;
}

}  // namespace amalgam
