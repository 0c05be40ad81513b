#include "inject/run/call_filter.hpp"

#include <cerrno>
#include <csignal>

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amalgam::detail {

namespace {

#if defined(__aarch64__)
constexpr std::uint32_t this_audit_architecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t this_audit_architecture = AUDIT_ARCH_X86_64;
#endif

}  // namespace

call_filter::call_filter() noexcept {
    load(offsetof(seccomp_data, arch));
    jump(BPF_JEQ, this_audit_architecture, 1, 0);
    answer(SECCOMP_RET_KILL_PROCESS);
    load(offsetof(seccomp_data, nr));
}

void call_filter::allow(long number, std::initializer_list<condition> when) noexcept {
    const std::size_t test = used_;
    jump(BPF_JEQ, static_cast<std::uint32_t>(number), 0, 0);
    for (const condition& each : when) {
        load(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(each.argument));
        push(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, each.bits));
        switch (each.what) {
            case condition::kind::without:
                jump(BPF_JSET, each.value, 0, 1);
                break;
            case condition::kind::equal:
                jump(BPF_JEQ, each.value, 1, 0);
                break;
            case condition::kind::differs:
                jump(BPF_JEQ, each.value, 0, 1);
                break;
            case condition::kind::at_most:
                jump(BPF_JGT, each.value, 0, 1);
                break;
        }
        refuse();
    }
    answer(SECCOMP_RET_ALLOW);
    all_[test].jf = static_cast<std::uint8_t>(used_ - test - 1);
}

std::span<const sock_filter> call_filter::finish() noexcept {
    refuse();
    return {all_.data(), used_};
}

void call_filter::push(sock_filter what) noexcept {
    if (used_ == all_.size()) ::_exit(1);
    all_[used_++] = what;
}
void call_filter::load(std::size_t offset) noexcept {
    push(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
}
void call_filter::jump(int how, std::uint32_t value, std::uint8_t yes, std::uint8_t no) noexcept {
    push(BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | how | BPF_K), value, yes, no));
}
void call_filter::answer(std::uint32_t what) noexcept {
    push(BPF_STMT(BPF_RET | BPF_K, what));
}
void call_filter::refuse() noexcept {
    answer(SECCOMP_RET_ERRNO | EPERM);
}

call_filter calls_of_confined_code(int keep_fd) noexcept {
    using is = call_filter::condition::kind;
    call_filter filter;
    for (const long each :
         {__NR_exit, __NR_exit_group, __NR_rt_sigreturn, __NR_munmap, __NR_mremap, __NR_brk,
          __NR_clock_gettime, __NR_getrandom, __NR_gettimeofday, __NR_sched_yield})
        filter.allow(each);
    // Needed by abort(), limited to itself.
    filter.allow(__NR_getpid);
    filter.allow(__NR_gettid);
    filter.allow(__NR_tgkill, {{is::equal, 0, static_cast<std::uint32_t>(::getpid())},
                               {is::equal, 1, static_cast<std::uint32_t>(::syscall(SYS_gettid))},
                               {is::equal, 2, SIGABRT}});
    filter.allow(__NR_write, {{is::equal, 0, static_cast<std::uint32_t>(keep_fd)}});
    // Private, non-executable memory; no huge pages, which are a shared resource.
    filter.allow(__NR_mmap,
                 {{is::without, 2, PROT_EXEC}, {is::without, 3, MAP_SHARED | MAP_HUGETLB}});
    filter.allow(__NR_mprotect, {{is::without, 2, PROT_EXEC}});
    filter.allow(__NR_madvise,
                 {{is::at_most, 2, 25}});  // Values from 100 on poison the machine's memory.
    // Not FUTEX_LOCK_PI and the like, which name foreign threads.
    constexpr std::uint32_t operation = 127;
    filter.allow(__NR_futex, {{is::at_most, 1, 10, operation},
                              {is::differs, 1, 6, operation},
                              {is::differs, 1, 7, operation},
                              {is::differs, 1, 8, operation}});
    return filter;
}

}  // namespace amalgam::detail
