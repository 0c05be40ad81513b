#include "tasks/dispatch/overflow.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <exception>
#include <string_view>

#include <unistd.h>

#include <amalgam/tasks/extension/guest.hpp>

#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/dispatch/thread_store.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/stacks/memory.hpp"

namespace amalgam::detail {

namespace {

// From here to install(): async-signal-safe code. No allocation, no lock, no stdio.

struct sigaction previous {};  // written before the handler is installed

/// One line, truncated if it does not fit.
class line {
public:
    line& operator<<(std::string_view text) noexcept {
        const std::size_t kept = std::min(text.size(), sizeof text_ - used_);
        std::memcpy(text_ + used_, text.data(), kept);
        used_ += kept;
        return *this;
    }
    line& number(std::uintptr_t value, int base) noexcept {
        char digits[20];
        const auto end = std::to_chars(digits, digits + sizeof digits, value, base).ptr;
        return *this << std::string_view(digits, static_cast<std::size_t>(end - digits));
    }
    void write() const noexcept {
        for (std::size_t at = 0; at < used_;) {
            const ssize_t wrote = ::write(STDERR_FILENO, text_ + at, used_ - at);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) return;
            at += static_cast<std::size_t>(wrote);
        }
    }

private:
    char text_[320];
    std::size_t used_ = 0;
};

/// What has overflowed: the stack of a ULT, or, without one, that of a primary stream's loop.
struct overflowed_stack {
    bool found = false;
    const ult_core* ult = nullptr;
    std::size_t bytes = 0;
};

std::atomic<const char*> option_of_guests{"ult_options::stack_bytes"};

const char* what_to_raise(const overflowed_stack& what) noexcept {
    return what.ult->guest == nullptr ? "ult_options::stack_bytes" : option_of_guests.load();
}

void report(const overflowed_stack& what, const void* address) noexcept {
    line said;
    said << "amalgam: ";
    if (what.ult == nullptr) {
        said << "a tasklet, timer callback or poller of a primary stream";
    } else if (const ult_core& who = *what.ult; who.name[0] != '\0') {
        said << "ULT '" << who.name.data() << "'";
    } else {
        said << "an unnamed ULT";
    }
    said << " overflowed its stack of ";
    said.number(what.bytes, 10) << " bytes, at address 0x";
    said.number(reinterpret_cast<std::uintptr_t>(address), 16)
        << (what.ult == nullptr ? ": make it a ULT with more of ult_options::stack_bytes"
                                : ": raise ")
        << (what.ult == nullptr ? "" : what_to_raise(what)) << ", or recurse less deeply\n";
    said.write();
}

/// The owner of that guard, among all ULTs and loops on this thread's call stack.
overflowed_stack overflowed_at(const void* address) noexcept {
    for (const overflow_watch* each = overflow_watch::innermost(); each != nullptr;
         each = each->outer) {
        const ult_core* const runs = each->of.running();
        if (runs != nullptr && runs->memory().guards(address))
            return {true, runs, runs->stack_bytes()};
        const stack_memory* const loop = each->of.loop_memory();
        if (loop != nullptr && loop->guards(address))
            return {true, nullptr, static_cast<std::size_t>(loop->top() - loop->bottom())};
    }
    return {};
}

void as_by_default(int signal, bool happens_again) noexcept {
    struct sigaction by_default {};
    by_default.sa_handler = SIG_DFL;
    ::sigaction(signal, &by_default, nullptr);
    if (!happens_again) ::raise(signal);
}

/// What the kernel would have done without our handler.
void pass_on(int signal, siginfo_t* what, void* machine, bool happens_again) noexcept {
    if ((previous.sa_flags & SA_SIGINFO) == 0 &&
        (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN)) {
        // A fault cannot be ignored, only a signal that was sent.
        if (previous.sa_handler == SIG_IGN && !happens_again) return;
        return as_by_default(signal, happens_again);
    }
    if ((previous.sa_flags & SA_RESETHAND) != 0) as_by_default(signal, true);
    if ((previous.sa_flags & SA_SIGINFO) != 0) {
        previous.sa_sigaction(signal, what, machine);
    } else {
        previous.sa_handler(signal);
    }
}

void on_fault(int signal, siginfo_t* what, void* machine) noexcept {
    const int error_before = errno;
    const bool happens_again = what->si_code > 0;  // else sent by kill() or raise()
    const overflowed_stack found =
        happens_again ? overflowed_at(what->si_addr) : overflowed_stack{};
    if (found.found) {
        report(found, what->si_addr);
        // The fault recurs and ends the process, with a core dump if enabled.
        ::sigaction(signal, &previous, nullptr);
    } else {
        pass_on(signal, what, machine, happens_again);
    }
    errno = error_before;
}

bool install() noexcept {
    if (::sigaction(SIGSEGV, nullptr, &previous) != 0) return false;
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    // Masked as for the previous handler, which we may call.
    ours.sa_mask = previous.sa_mask;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (previous.sa_flags & (SA_NODEFER | SA_RESTART));
    return ::sigaction(SIGSEGV, &ours, nullptr) == 0;
}

}  // namespace

[[gnu::noinline]] void overflow_watch::prepare(thread_store& own) noexcept {
    static const bool installed = install();
    if (installed) own.for_signals.emplace();
}

alternate_stack::alternate_stack() noexcept {
    stack_t present{};
    if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
    constexpr std::size_t roomy = 64 * 1024;  // previous handlers may do more
    const long least = ::sysconf(_SC_SIGSTKSZ);
    try {
        memory_ = map_stack(std::max(roomy, least > 0 ? static_cast<std::size_t>(least) : 0));
    } catch (const std::exception&) {
        return;  // an overflow will end the process without a message
    }
    stack_t mine{};
    mine.ss_sp = memory_.bottom();
    mine.ss_size = static_cast<std::size_t>(memory_.top() - memory_.bottom());
    ::sigaltstack(&mine, nullptr);
}

alternate_stack::~alternate_stack() {
    if (memory_.low == nullptr) return;
    stack_t present{};
    if (::sigaltstack(nullptr, &present) == 0 && present.ss_sp == memory_.bottom()) {
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        if (::sigaltstack(&none, nullptr) != 0) return;  // the thread is running on it
    }
    unmap_stack(memory_);
}

void name_stack_option(const char* what) noexcept {
    option_of_guests = what;
}

}  // namespace amalgam::detail
