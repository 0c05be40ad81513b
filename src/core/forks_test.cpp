#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
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

/// Guards a mutex, and tells when fork() begins to wait for it.
struct guarded_mutex {
    std::mutex mutex;
    std::atomic<bool> is_wanted{false};

    void lock_for_fork() {
        is_wanted = true;
        is_wanted.notify_all();
        mutex.lock();
    }
};
constinit guarded_mutex early_guarded, late_guarded, nested_guarded;
constinit fork_handlers early_handlers([] { early_guarded.lock_for_fork(); },
                                       [] { early_guarded.mutex.unlock(); },
                                       [] { early_guarded.mutex.unlock(); });
constinit fork_handlers late_handlers([] { late_guarded.lock_for_fork(); },
                                      [] { late_guarded.mutex.unlock(); },
                                      [] { late_guarded.mutex.unlock(); });
constinit fork_handlers nested_handlers([] { nested_guarded.lock_for_fork(); },
                                        [] { nested_guarded.mutex.unlock(); },
                                        [] { nested_guarded.mutex.unlock(); });

constinit std::atomic<bool> fork_is_slow{false}, fork_is_between{false}, late_is_taken{false};

void be_slow_in_fork() {
    if (!fork_is_slow) return;
    fork_is_between = true;
    fork_is_between.notify_all();
    for (int i = 0; i < 200 && !late_is_taken; ++i)
        ::usleep(1000);
}

/// As of a library that was loaded before ours: fork() calls it between our handlers and the copy.
[[gnu::constructor(101)]] void register_slow_handler() {
    ::pthread_atfork(be_slow_in_fork, nullptr, nullptr);
}

TEST(fork_handlers, that_come_while_another_thread_forks_leave_no_lock_taken_in_the_child) {
    std::atomic<bool> over{false};
    std::thread other([&] {
        fork_is_between.wait(false);
        EXPECT_TRUE(late_handlers.watch());
        const std::lock_guard hold(late_guarded.mutex);
        late_is_taken = true;
        over.wait(false);
    });
    fork_is_slow = true;
    EXPECT_TRUE(holds_in_child([] { return late_guarded.mutex.try_lock(); }));
    fork_is_slow = false;
    over = true;
    over.notify_all();
    other.join();
    EXPECT_TRUE(holds_in_child([] { return late_guarded.mutex.try_lock(); }));
    EXPECT_TRUE(late_guarded.is_wanted) << "by the second fork()";
}

TEST(fork_handlers, may_come_from_who_holds_what_fork_waits_for) {
    ASSERT_TRUE(early_handlers.watch());
    std::atomic<bool> has_lock{false}, over{false};
    std::thread other([&] {
        {
            const std::lock_guard hold(early_guarded.mutex);
            has_lock = true;
            has_lock.notify_all();
            early_guarded.is_wanted.wait(false);
            EXPECT_TRUE(nested_handlers.watch());
        }
        over.wait(false);
    });
    has_lock.wait(false);
    EXPECT_TRUE(holds_in_child([] {
        return nested_guarded.is_wanted && nested_guarded.mutex.try_lock() &&
               early_guarded.mutex.try_lock();
    }));
    over = true;
    over.notify_all();
    other.join();
    EXPECT_TRUE(early_guarded.mutex.try_lock());
    EXPECT_TRUE(nested_guarded.mutex.try_lock());
    early_guarded.mutex.unlock();
    nested_guarded.mutex.unlock();
}

}  // namespace
}  // namespace amalgam::detail
