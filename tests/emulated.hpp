#pragma once

#include <cstdlib>

namespace amalgam {

/// Whether the program runs under qemu, as scripts/aarch64_tests has it: qemu knows only a part of
/// what the kernel can do for memory and for sockets.
inline bool is_emulated() noexcept {
    return std::getenv("QEMU_LD_PREFIX") != nullptr;
}

// Why a test is skipped there.
inline constexpr const char* qemu_cannot_copy_between_processes = "qemu has no process_vm_readv";
inline constexpr const char* qemu_cannot_look_first =
    "qemu has no process_vm_readv, and takes unknown advice of madvise for done";
inline constexpr const char* qemu_reads_for_the_kernel =
    "qemu itself reads what is sent, and ends where a kernel says that it cannot be read";
inline constexpr const char* qemu_makes_proc_files_up =
    "qemu has /proc/self/smaps and stat of its own, with little in them";
inline constexpr const char* qemu_has_no_seccomp = "qemu has no seccomp";
inline constexpr const char* qemu_tells_little_of_tcp =
    "qemu fills in only the first word of TCP_INFO";

}  // namespace amalgam
