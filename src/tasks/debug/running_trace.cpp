#include "tasks/debug/running_trace.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <mutex>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "tasks/debug/stack_trace.hpp"
#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/limits.hpp"

namespace amalgam::detail {

int running_trace_signal() noexcept {
    return SIGRTMAX - 2;
}

#if defined(AMALGAM_OWN_STACK_SWITCH)

namespace {

/// A question to one thread, and its answer. A signal may arrive late, during another question: so
/// the state counts up by four per question, and only an open question is answered.
struct question {
    enum : std::uint32_t { asked = 0, being_answered = 1, over = 2, states = 4 };
    std::atomic<std::uint32_t> state{over};
    std::atomic<pid_t> thread{0};
    const dispatcher* on = nullptr;
    const ult_core* who = nullptr;
    std::array<std::uintptr_t, 64> frames{};
    std::size_t count = 0;
};
constinit question now_asked;

void futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value,
           const timespec* until) noexcept {
    ::syscall(SYS_futex, &word, what, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

/// Called by the ULT itself, or on its stream's thread while that is interrupted. `stack_pointer`:
/// of the innermost wanted frame.
std::size_t trace_own(const ult_core& who, const void* stack_pointer,
                      std::span<std::uintptr_t> into) noexcept {
    const stack_memory& its = who.memory();
    // Otherwise the signal came during a switch, or the ULT's stack is a thread's.
    if (its.low == nullptr || stack_pointer < its.bottom() || stack_pointer >= its.top()) return 0;
    return trace_caller(stack_pointer, its.top(), into);
}

bool is_run_here(const dispatcher* on, const ult_core* who) noexcept {
    const dispatcher* const here = dispatcher::current();
    return here != nullptr && here == on && here->running() == who;
}

const void* stack_pointer_of(const ucontext_t& interrupted) noexcept {
    const auto& registers = interrupted.uc_mcontext;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(registers.gregs[REG_RSP]);
#else
    return reinterpret_cast<const void*>(registers.sp);
#endif
}

// No allocation, no lock; the unwinder has been used before, so its one-time lookups are done.
extern "C" void amalgam_answer_trace(int, siginfo_t*, void* interrupted) {
    const int before = errno;
    question& what = now_asked;
    std::uint32_t state = what.state.load(std::memory_order_acquire);
    if (state % question::states == question::asked &&
        what.thread.load(std::memory_order_relaxed) == ::gettid() &&
        what.state.compare_exchange_strong(state, state + 1, std::memory_order_acq_rel)) {
        what.count = 0;
        if (is_run_here(what.on, what.who)) {
            what.count =
                trace_own(*what.who, stack_pointer_of(*static_cast<const ucontext_t*>(interrupted)),
                          what.frames);
        }
        what.state.store(state + 2, std::memory_order_release);
        futex(what.state, FUTEX_WAKE_PRIVATE, 1, nullptr);
    }
    errno = before;
}

/// False: the program uses the signal.
bool handle_signal() noexcept {
    const int number = running_trace_signal();
    struct sigaction present {};
    if (::sigaction(number, nullptr, &present) != 0) return false;
    if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == &amalgam_answer_trace)
        return true;
    if ((present.sa_flags & SA_SIGINFO) != 0 || present.sa_handler != SIG_DFL) return false;
    // The unwinder's first use may allocate and lock.
    std::array<std::uintptr_t, 1> first{};
    trace_caller(__builtin_frame_address(0), reinterpret_cast<const void*>(UINTPTR_MAX), first);
    struct sigaction wanted {};
    wanted.sa_sigaction = &amalgam_answer_trace;
    wanted.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    sigemptyset(&wanted.sa_mask);
    return ::sigaction(number, &wanted, nullptr) == 0;
}

/// False: no answer, and none will come.
bool wait_for_answer(question& what, std::uint32_t asked) noexcept {
    const auto give_up =
        (std::chrono::steady_clock::now() + limits::trace_limit).time_since_epoch();
    const auto whole = std::chrono::floor<std::chrono::seconds>(give_up);
    const timespec until{whole.count(), (give_up - whole).count()};
    for (std::uint32_t state = asked; state != asked + question::over;
         state = what.state.load(std::memory_order_acquire)) {
        futex(what.state, FUTEX_WAIT_BITSET_PRIVATE, state, state == asked ? &until : nullptr);
        if (std::chrono::steady_clock::now().time_since_epoch() < give_up) continue;
        state = asked;
        if (what.state.compare_exchange_strong(state, asked + question::over)) return false;
    }
    return true;
}

}  // namespace

std::size_t trace_running(const running_ult& what, std::span<std::uintptr_t> into) noexcept {
    if (is_run_here(what.on, what.who))
        return trace_own(*what.who, __builtin_frame_address(0), into);
    static constinit std::mutex one_at_a_time;
    const std::lock_guard hold(one_at_a_time);
    if (what.thread == 0 || !handle_signal()) return 0;
    question& mine = now_asked;
    mine.thread.store(what.thread, std::memory_order_relaxed);
    mine.on = what.on;
    mine.who = what.who;
    const std::uint32_t asked = mine.state.load(std::memory_order_relaxed) + 2;
    mine.state.store(asked, std::memory_order_release);
    if (::syscall(SYS_tgkill, ::getpid(), what.thread, running_trace_signal()) != 0) {
        mine.state.store(asked + question::over, std::memory_order_relaxed);
        return 0;
    }
    if (!wait_for_answer(mine, asked)) return 0;
    const std::size_t count = std::min(mine.count, into.size());
    std::copy_n(mine.frames.begin(), count, into.begin());
    return count;
}

#else

std::size_t trace_running(const running_ult&, std::span<std::uintptr_t>) noexcept {
    return 0;
}

#endif

}  // namespace amalgam::detail
