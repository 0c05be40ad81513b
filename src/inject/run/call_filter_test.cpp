#include "inject/run/call_filter.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amalgam::detail {
namespace {

constexpr std::uint32_t refused = SECCOMP_RET_ERRNO | EPERM;

/// The program, run as the kernel would: here also where there is no seccomp, as under qemu.
class filtered_calls : public testing::Test {
protected:
    std::uint32_t answer_to(const seccomp_data& call) const {
        std::uint32_t value = 0;
        for (std::size_t at = 0; at < program_.size(); ++at) {
            const sock_filter& each = program_[at];
            bool yes = false;
            switch (each.code) {
                case BPF_LD | BPF_W | BPF_ABS:
                    std::memcpy(&value, reinterpret_cast<const char*>(&call) + each.k,
                                sizeof value);
                    continue;
                case BPF_ALU | BPF_AND | BPF_K:
                    value &= each.k;
                    continue;
                case BPF_RET | BPF_K:
                    return each.k;
                case BPF_JMP | BPF_JEQ | BPF_K:
                    yes = value == each.k;
                    break;
                case BPF_JMP | BPF_JSET | BPF_K:
                    yes = (value & each.k) != 0;
                    break;
                case BPF_JMP | BPF_JGT | BPF_K:
                    yes = value > each.k;
                    break;
                default:
                    ADD_FAILURE() << "an instruction that this does not know: " << each.code;
                    return 0;
            }
            at += yes ? each.jt : each.jf;
        }
        ADD_FAILURE() << "it ends without an answer";
        return 0;
    }
    std::uint32_t answer_to(long number, std::initializer_list<long> arguments = {}) const {
        seccomp_data call{};
        call.nr = static_cast<int>(number);
        call.arch = this_architecture;
        std::size_t next = 0;
        for (const long each : arguments)
            call.args[next++] = static_cast<std::uint64_t>(each);
        return answer_to(call);
    }
    bool allows(long number, std::initializer_list<long> arguments = {}) const {
        const std::uint32_t answer = answer_to(number, arguments);
        EXPECT_TRUE(answer == SECCOMP_RET_ALLOW || answer == refused) << answer;
        return answer == SECCOMP_RET_ALLOW;
    }

#if defined(__aarch64__)
    static constexpr std::uint32_t this_architecture = AUDIT_ARCH_AARCH64;
    static constexpr std::uint32_t another_architecture = AUDIT_ARCH_X86_64;
#else
    static constexpr std::uint32_t this_architecture = AUDIT_ARCH_X86_64;
    static constexpr std::uint32_t another_architecture = AUDIT_ARCH_AARCH64;
#endif
    static constexpr int pipe_fd = 3;

private:
    call_filter filter_ = calls_of_confined_code(pipe_fd);
    std::span<const sock_filter> program_ = filter_.finish();
};

TEST_F(filtered_calls, those_that_ordinary_code_needs_are_allowed) {
    for (const long each : {SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_munmap, SYS_mremap,
                            SYS_brk, SYS_clock_gettime, SYS_getrandom, SYS_gettimeofday,
                            SYS_sched_yield, SYS_getpid, SYS_gettid})
        EXPECT_TRUE(allows(each)) << each;
    EXPECT_TRUE(allows(SYS_write, {pipe_fd, 0, 10}));
    EXPECT_TRUE(allows(SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS}));
    EXPECT_TRUE(allows(SYS_mprotect, {0, 4096, PROT_READ}));
    EXPECT_TRUE(allows(SYS_madvise, {0, 4096, MADV_DONTNEED}));
    for (const int each : {FUTEX_WAIT, FUTEX_WAKE, FUTEX_WAIT_BITSET, FUTEX_WAKE_BITSET})
        EXPECT_TRUE(allows(SYS_futex, {0, each | FUTEX_PRIVATE_FLAG})) << each;
    EXPECT_TRUE(allows(SYS_tgkill, {::getpid(), ::syscall(SYS_gettid), SIGABRT}));
}

TEST_F(filtered_calls, those_that_reach_anything_else_are_refused) {
    for (const long each : {SYS_openat,
                            SYS_read,
                            SYS_close,
                            SYS_dup,
                            SYS_socket,
                            SYS_connect,
                            SYS_clone,
                            SYS_clone3,
                            SYS_execve,
                            SYS_ptrace,
                            SYS_kill,
                            SYS_tkill,
                            SYS_prctl,
                            SYS_unshare,
                            SYS_setns,
                            SYS_process_vm_readv,
                            SYS_process_vm_writev,
                            SYS_ioctl,
                            SYS_shmat,
                            SYS_bpf,
                            SYS_seccomp,
                            SYS_io_uring_setup,
                            SYS_userfaultfd,
                            SYS_memfd_create,
                            SYS_pkey_mprotect})
        EXPECT_FALSE(allows(each)) << each;
    for (long each = SYS_faccessat2; each < 600; ++each)  // Those that kernels may add, too.
        EXPECT_FALSE(allows(each)) << each;
}

TEST_F(filtered_calls, their_arguments_are_looked_at) {
    EXPECT_FALSE(allows(SYS_write, {1, 0, 10}));
    EXPECT_FALSE(allows(SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS}));
    EXPECT_FALSE(allows(SYS_mmap, {0, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS}));
    EXPECT_FALSE(allows(SYS_mmap, {0, 4096, PROT_READ, MAP_PRIVATE | MAP_HUGETLB}));
    EXPECT_FALSE(allows(SYS_mprotect, {0, 4096, PROT_READ | PROT_EXEC}));
    EXPECT_FALSE(allows(SYS_madvise, {0, 4096, 100})) << "it poisons memory";
    for (const int each : {FUTEX_LOCK_PI, FUTEX_UNLOCK_PI, FUTEX_TRYLOCK_PI, FUTEX_WAIT_REQUEUE_PI})
        EXPECT_FALSE(allows(SYS_futex, {0, each | FUTEX_PRIVATE_FLAG})) << each;
    const long self = ::getpid(), thread = ::syscall(SYS_gettid);
    EXPECT_FALSE(allows(SYS_tgkill, {self + 1, thread, SIGABRT}));
    EXPECT_FALSE(allows(SYS_tgkill, {self, thread + 1, SIGABRT}));
    EXPECT_FALSE(allows(SYS_tgkill, {self, thread, SIGKILL}));
}

TEST_F(filtered_calls, by_another_architectures_numbers_end_the_process) {
    seccomp_data call{};
    call.nr = static_cast<int>(SYS_getpid);
    call.arch = another_architecture;
    EXPECT_EQ(answer_to(call), SECCOMP_RET_KILL_PROCESS);
    constexpr int of_x32 = 0x40000000;
    EXPECT_FALSE(allows(SYS_getpid | of_x32));
}

}  // namespace
}  // namespace amalgam::detail
