#include "tasks/dispatch/overflow.hpp"

#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "emulated.hpp"
#include "tasks/stacks/memory.hpp"
#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {
namespace {

struct end_of_child {
    int status;
    std::string said;  // on standard error

    bool says(const std::string& text) const { return said.find(text) != std::string::npos; }
    bool by_fault() const {
        // A sanitizer reports the fault itself, and exits.
        return detail::sanitized ? status != 0 : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
    }
    bool by_exit(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

/// Runs `body` in its own process.
end_of_child child_that(const std::function<void()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        ::close(ends[1]);
        if (is_emulated()) detail::set_guards_share_mappings(false);
        body();
        ::_exit(0);
    }
    ::close(ends[1]);
    end_of_child end{};
    char part[4096];
    for (ssize_t got; (got = ::read(ends[0], part, sizeof part)) > 0;)
        end.said.append(part, static_cast<std::size_t>(got));
    ::close(ends[0]);
    EXPECT_EQ(::waitpid(child, &end.status, 0), child);
    return end;
}

/// Touches every byte, so that no frame steps over the guard.
int recurse(int depth) {
    volatile char frame[1024];
    std::memset(const_cast<char*>(frame), depth, sizeof frame);
    return depth > 100'000'000 ? 0 : recurse(depth + 1) + frame[depth % 1024];
}

/// A fault that is not an overflow.
void touch_what_is_forbidden() {
    void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char*>(page) = 1;
}

void in_ult(void (*body)(), ult_options options = {}) {
    execution_stream stream{execution_stream_options{.driven = true}};
    post(stream, body, options);
    stream.run_ready();
}

void overflow() {
    recurse(0);
}

TEST(stack_overflow, is_reported_with_the_name_of_the_ult_and_the_size_of_its_stack) {
    const auto end =
        child_that([] { in_ult(overflow, {.name = "deep thought", .stack_bytes = 123'456}); });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_TRUE(
        end.says("amalgam: ULT 'deep thought' overflowed its stack of 123456 bytes, at "
                 "address 0x"))
        << end.said;
    EXPECT_TRUE(end.says(": raise ult_options::stack_bytes, or recurse less deeply\n")) << end.said;
}

// As ult_options documents.
TEST(stack_overflow, of_a_ult_that_asks_for_no_size_is_one_of_256_KiB) {
    const std::size_t promised = std::size_t{detail::sanitized ? 1024 : 256} << 10;
    const auto end = child_that([] { in_ult(overflow); });
    EXPECT_TRUE(end.says("overflowed its stack of " + std::to_string(promised) + " bytes"))
        << end.said;
    const auto enough = child_that([] {
        in_ult([] {
            volatile char most[250 << 10];
            for (std::size_t at = sizeof most; at-- > 0;)
                most[at] = 1;
        });
    });
    EXPECT_TRUE(enough.by_exit(0)) << enough.said;
}

TEST(stack_overflow, on_the_thread_of_a_stream_is_reported_too) {
    const auto end = child_that([] {
        execution_stream stream;
        spawn(stream, overflow).join();
    });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_TRUE(end.says("amalgam: an unnamed ULT overflowed its stack of ")) << end.said;
}

TEST(stack_overflow, of_a_ult_that_runs_another_stream_is_reported) {
    const auto end = child_that([] {
        execution_stream outer{execution_stream_options{.driven = true}};
        post(outer,
             [] {
                 execution_stream inner{execution_stream_options{.driven = true}};
                 post_tasklet(inner, overflow);  // on the stack of the stream's driver
                 inner.run_ready();
             },
             {.name = "outer"});
        outer.run_ready();
    });
    EXPECT_TRUE(end.says("ULT 'outer' overflowed")) << end.said;
}

/// Of the loop of a primary stream.
void in_tasklet_of_primary(void (*body)()) {
    execution_stream here{execution_stream_options{.primary = true}};
    spawn_tasklet(here, body).join();
}

TEST(stack_overflow, of_a_tasklet_of_a_primary_stream_is_reported_and_has_some_MiB) {
    const auto end = child_that([] { in_tasklet_of_primary(overflow); });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_TRUE(
        end.says("amalgam: a tasklet, timer callback or poller of a primary stream "
                 "overflowed its stack of 4194304 bytes, at address 0x"))
        << end.said;
    const auto enough = child_that([] {
        in_tasklet_of_primary([] {
            volatile char most[3 << 20];
            for (std::size_t at = sizeof most; at-- > 0;)
                most[at] = 1;
        });
    });
    EXPECT_TRUE(enough.by_exit(0)) << enough.said;
}

TEST(stack_overflow, is_what_no_other_fault_is_taken_for) {
    const auto end = child_that([] { in_ult(touch_what_is_forbidden); });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_FALSE(end.says("overflowed")) << end.said;
}

TEST(stack_overflow, is_not_what_a_sent_signal_is_taken_for) {
    const auto end = child_that([] { in_ult([] { ::raise(SIGSEGV); }); });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_FALSE(end.says("overflowed")) << end.said;
}

void install_own_handler(int flags) {
    struct sigaction own {};
    own.sa_sigaction = [](int, siginfo_t*, void*) {
        [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, "my handler\n", 11);
        ::_exit(42);
    };
    own.sa_flags = SA_SIGINFO | flags;
    ::sigaction(SIGSEGV, &own, nullptr);
}

TEST(stack_overflow, handler_leaves_other_faults_to_the_program_s_own) {
    const auto end = child_that([] {
        install_own_handler(0);
        in_ult(touch_what_is_forbidden);
    });
    EXPECT_TRUE(end.by_exit(42)) << end.status;
    EXPECT_EQ(end.said, "my handler\n");
}

TEST(stack_overflow, is_reported_before_the_program_s_own_handler_sees_it) {
    const auto end = child_that([] {
        install_own_handler(SA_ONSTACK);
        in_ult(overflow);
    });
    EXPECT_TRUE(end.by_exit(42)) << end.status;
    EXPECT_TRUE(end.says("overflowed")) << end.said;
    EXPECT_TRUE(end.says("\nmy handler\n")) << end.said;
}

TEST(stack_overflow, leaves_a_sent_signal_ignored_that_the_program_ignores) {
    const auto end = child_that([] {
        ::signal(SIGSEGV, SIG_IGN);
        in_ult([] { ::raise(SIGSEGV); });
    });
    EXPECT_TRUE(end.by_exit(0)) << end.status;
}

/// How a child ends that is sent two faults, and has a handler that returns.
end_of_child sent_two(int flags) {
    return child_that([=] {
        struct sigaction own {};
        own.sa_sigaction = [](int, siginfo_t*, void*) {
            [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, "again\n", 6);
        };
        own.sa_flags = SA_SIGINFO | flags;
        ::sigaction(SIGSEGV, &own, nullptr);
        in_ult([] {
            ::raise(SIGSEGV);
            ::raise(SIGSEGV);
        });
    });
}

TEST(stack_overflow, calls_a_handler_for_each_signal_unless_the_program_wanted_it_once) {
    const auto each = sent_two(0);
    EXPECT_TRUE(each.by_exit(0)) << each.status;
    EXPECT_EQ(each.said, "again\nagain\n");
    const auto once = sent_two(static_cast<int>(SA_RESETHAND));
    EXPECT_TRUE(once.by_fault()) << once.status;
    EXPECT_TRUE(once.said.starts_with("again\n")) << once.said;
    EXPECT_FALSE(once.says("again\nagain\n")) << once.said;
}

TEST(stack_overflow, is_reported_on_the_alternate_stack_that_a_thread_has) {
    static std::vector<char> own_stack(256 * 1024);
    const auto end = child_that([] {
        std::thread([] {
            stack_t mine{};
            mine.ss_sp = own_stack.data();
            mine.ss_size = own_stack.size();
            ::sigaltstack(&mine, nullptr);
            in_ult([] {});
            stack_t now{};
            ::sigaltstack(nullptr, &now);
            if (now.ss_sp != own_stack.data()) ::_exit(1);
            in_ult(overflow);
        }).join();
    });
    EXPECT_TRUE(end.by_fault()) << end.status;
    EXPECT_TRUE(end.says("overflowed")) << end.said;
}

TEST(stack_overflow, takes_a_signal_stack_that_is_freed_when_its_thread_ends) {
    if (detail::sanitized) GTEST_SKIP() << "a sanitizer may give threads signal stacks itself";
    const auto end = child_that([] {
        void* stack = nullptr;
        std::thread([&] {
            in_ult([] {});
            stack_t now{};
            ::sigaltstack(nullptr, &now);
            if ((now.ss_flags & SS_DISABLE) == 0) stack = now.ss_sp;
        }).join();
        if (stack == nullptr) ::_exit(1);
        int ends[2];
        if (::pipe(ends) != 0) ::_exit(2);
        // The kernel cannot read unmapped memory.
        ::_exit(::write(ends[1], stack, 1) == -1 ? 0 : 3);
    });
    EXPECT_TRUE(end.by_exit(0)) << end.status;
}

}  // namespace
}  // namespace amalgam
