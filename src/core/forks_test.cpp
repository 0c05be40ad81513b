#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/forks.hpp>

namespace amalgam::detail {
namespace {

std::string calls_of_fork;

template <char Before, char InParent, char InChild>
constinit fork_handlers noted([] { calls_of_fork += Before; }, [] { calls_of_fork += InParent; },
                              [] { calls_of_fork += InChild; });

/// What the child's exit code tells: whether `holds` does there.
template <typename Condition>
bool holds_in_child(Condition holds) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(holds() ? 0 : 1);
    int how = 1;
    return ::waitpid(child, &how, 0) == child && how == 0;
}

TEST(fork_handlers, are_called_once_each_the_last_first_before_it_and_the_first_first_after) {
    auto& first = noted<'1', 'a', 'x'>;
    auto& last = noted<'2', 'b', 'y'>;
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(first.watch());
        ASSERT_TRUE(last.watch());
    }
    calls_of_fork.clear();
    EXPECT_TRUE(holds_in_child([] { return calls_of_fork == "21xy"; }));
    EXPECT_EQ(calls_of_fork, "21ab");
}

constinit std::atomic<int> held{0};

/// One each for many threads that register while others fork.
template <int>
constinit fork_handlers holding([] { ++held; }, [] { --held; }, [] { --held; });

template <int... Each>
constexpr std::array<fork_handlers*, sizeof...(Each)> all_of(
    std::integer_sequence<int, Each...>) noexcept {
    return {&holding<Each>...};
}

TEST(fork_handlers, of_a_child_can_be_registered_whatever_its_parents_threads_were_registering) {
    constexpr int number = 16;
    constexpr auto all = all_of(std::make_integer_sequence<int, number>());
    std::atomic<bool> begun{false}, over{false};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; ++thread)
        threads.emplace_back([&] {
            begun.wait(false);
            for (fork_handlers* each : all)
                EXPECT_TRUE(each->watch());
            over.wait(false);  // A child has no finished thread that ThreadSanitizer would miss.
        });
    begun = true;
    begun.notify_all();
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(holds_in_child([&] {
            for (fork_handlers* each : all)
                if (!each->watch()) return false;
            return held == 0;
        }));
    }
    over = true;
    over.notify_all();
    for (std::thread& each : threads)
        each.join();
    EXPECT_TRUE(holds_in_child([] { return held == 0; }));
    EXPECT_EQ(held, 0);
}

}  // namespace
}  // namespace amalgam::detail
