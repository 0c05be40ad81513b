#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/start_sleep.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/ult_local.hpp>

#include "conformance/slow_build.hpp"
#include "core/returning_child_testing.hpp"
#include "tasks/stacks/sanitizer.hpp"

// fork() children while streams run. A child has only one of several threads, which a leak check
// cannot know.
extern "C" const char* __lsan_default_suppressions() {
    return "leak:__cxa_thread_atexit_impl\n";
}

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using core_testing::child_that_returns;
using core_testing::ended;

/// Exit code of `body` run in a child.
template <typename Body>
int in_child(Body body) {
    const pid_t child = ::fork();
    if (child != 0) return ended(child);
    int code = 99;
    try {
        code = body();
    } catch (...) {
        code = 98;
    }
    ::_exit(code);
}

/// True: it was refused with the message about forks.
template <typename Act>
bool refused(Act act) {
    try {
        act();
    } catch (const error& why) {
        return why.code() == errc::closed &&
               std::string(why.what()).find("parent process") != std::string::npos;
    }
    return false;
}

/// A new stream works. Under ThreadSanitizer a child may start no thread if its parent has run
/// ULTs, nor can it tell the child's ULTs apart.
bool a_new_stream_works() {
    execution_stream own({.driven = detail::sanitized});
#if defined(__SANITIZE_THREAD__)
    return true;
#endif
    bool ran = false;
    ult one = spawn(own, [&] {
        this_task::yield();
        ran = true;
    });
    if (own.driven()) own.run_ready();
    one.join();
    own.stop();
    return ran;
}

TEST(forked_child, is_refused_what_its_parents_streams_would_run) {
    execution_stream parents;
    shared_fifo_pool shared;
    execution_stream of_shared(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    spawn(shared, [] {}).join();
    const auto other_order = [&] {
        return std::make_unique<basic_scheduler>(std::vector<pool*>{&parents.main_pool()});
    };
    EXPECT_EQ(in_child([&] {
                  if (!refused([&] { spawn(parents, [] {}).join(); })) return 1;
                  if (!refused([&] { post(parents, [] {}); })) return 2;
                  if (!refused([&] { spawn(shared, [] {}).join(); })) return 3;
                  if (!refused([&] { spawn_tasklet(parents, [] {}).join(); })) return 4;
                  if (!refused([&] { parents.set_scheduler(other_order()); })) return 5;
                  return 0;
              }),
              0);
    spawn(parents, [] {}).join();
}

TEST(forked_child, is_refused_to_join_what_its_parent_has_made) {
    execution_stream parents;
    event go_on;
    ult parked = spawn(parents, [&] { go_on.wait(); });
    std::atomic<bool> go_on_running{false}, runs{false};
    ult running = spawn(parents, [&] {
        runs = true;
        while (!go_on_running)
            std::this_thread::yield();
    });
    while (!runs)
        std::this_thread::yield();
    tasklet queued = spawn_tasklet(parents, [] {});
    EXPECT_EQ(in_child([&] {
                  if (!refused([&] { parked.join(); })) return 1;
                  if (!refused([&] { running.join(); })) return 2;
                  if (!refused([&] { queued.join(); })) return 3;
                  { const ult let_go = std::move(parked); }
                  { const tasklet let_go = std::move(queued); }
                  return 0;
              }),
              0);
    go_on_running = true;
    go_on.set();
}

TEST(forked_child, ends_its_parents_streams_without_waiting) {
    auto parents = std::make_unique<execution_stream>();
    event go_on;
    const ult parked = spawn(*parents, [&] { go_on.wait(); });
    EXPECT_EQ(in_child([&] {
                  parents->stop();
                  if (!parents->stop_within(1h)) return 1;
                  parents.reset();
                  return 0;
              }),
              0);
    go_on.set();
}

TEST(forked_child, makes_streams_of_its_own) {
    execution_stream parents;
    shared_fifo_pool shared;
    execution_stream of_shared(std::make_unique<basic_scheduler>(std::vector<pool*>{&shared}));
    event go_on;
    const ult parked = spawn(parents, [&] { go_on.wait(); });
    EXPECT_EQ(in_child([&] { return a_new_stream_works() ? 0 : 1; }), 0);
    go_on.set();
}

TEST(forked_child, exits_although_its_parents_streams_are_static) {
    if (detail::sanitized)
        GTEST_SKIP() << "the check for leaks at a child's exit finds what threads of its parent "
                        "hold, or waits for a lock of theirs";
    static execution_stream at_exit;
    static event never;
    static ult parked = spawn(at_exit, [] { never.wait(); });
    const pid_t child = ::fork();
    if (child == 0) std::exit(7);
    EXPECT_EQ(ended(child), 7);
    never.set();
}

TEST(forked_child, of_a_ult_is_a_plain_thread) {
    execution_stream parents;
    event go_on;
    int other_ran = 0;
    const ult other = spawn(parents, [&] {
        go_on.wait();
        ++other_ran;
    });
    const auto child = [&] {
        if (this_task::in_ult() || execution_stream::current() != nullptr) return 1;
        go_on.set();  // No stream runs it here.
        this_task::yield();
        this_task::sleep_for(1us);
        if (other_ran != 0) return 2;
        if (!refused([&] { spawn(parents, [] {}).join(); })) return 3;
        return a_new_stream_works() ? 0 : 4;
    };
    int code = -1;
    spawn(parents, [&] { code = in_child(child); }).join();
    EXPECT_EQ(code, 0);
    go_on.set();
}

TEST(forked_child, that_returns_from_a_ult_is_ended) {
    execution_stream parents;
    child_that_returns child;
    spawn(parents, [&] { child.fork(); }).join();
    EXPECT_TRUE(child.was_ended());
}

TEST(forked_child, that_throws_out_of_a_ult_is_ended) {
    execution_stream parents;
    child_that_returns child;
    ult forks = spawn(parents, [&] {
        child.fork();
        throw 7;
    });
    EXPECT_THROW(forks.join(), int);
    EXPECT_TRUE(child.was_ended());
}

TEST(forked_child, that_returns_from_a_value_of_a_ult_that_ends_is_ended) {
    struct forks_at_its_end {
        child_that_returns* child = nullptr;
        ~forks_at_its_end() {
            if (child != nullptr) child->fork();
        }
    };
    static ult_local<forks_at_its_end> local;
    execution_stream parents;
    child_that_returns child;
    spawn(parents, [&] { local->child = &child; }).join();
    EXPECT_TRUE(child.was_ended());
}

TEST(forked_child, that_returns_from_a_tasklet_is_ended) {
    execution_stream parents;
    child_that_returns child;
    int others = 0;
    tasklet forks = spawn_tasklet(parents, [&] { child.fork(); });
    spawn_tasklet(parents, [&] { ++others; }).join();
    forks.join();
    EXPECT_TRUE(child.was_ended());
    EXPECT_EQ(others, 1);
}

TEST(forked_child, that_returns_from_a_coroutine_is_ended) {
    execution_stream parents;
    child_that_returns child;
    const auto forks = [&]() -> task<void> {
        co_await start_sleep_for(parents, 1ns);
        child.fork();
    };
    forks().get();
    EXPECT_TRUE(child.was_ended());
}

TEST(forked_child, that_returns_from_a_timer_is_ended) {
    static child_that_returns* child = nullptr;
    child_that_returns here;
    child = &here;
    execution_stream parents({.driven = true});
    timer forks(parents, [](timer&) noexcept { child->fork(); });
    timer later(parents, [](timer&) noexcept {});
    forks.arm(parents.now());
    later.arm(parents.now());
    while (!here.forked())
        parents.run_ready();
    EXPECT_TRUE(here.was_ended());
}

TEST(forked_child, that_returns_from_a_poller_is_ended) {
    struct forks_once final : poller {
        child_that_returns child;
        std::size_t poll() noexcept override {
            if (child.forked()) return 0;
            child.fork();
            return 1;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
    } forks;
    execution_stream parents({.driven = true});
    parents.add_poller(forks);
    while (!forks.child.forked())
        parents.run_ready();
    parents.remove_poller(forks);
    EXPECT_TRUE(forks.child.was_ended());
}

TEST(forked_child, that_returns_from_a_scheduler_is_ended) {
    struct forks_once final : scheduler {
        forks_once(pool& only, child_that_returns& whom) : all{&only}, child(whom) {}
        work_unit* next() noexcept override {
            work_unit* const unit = all[0]->pop();
            if (unit != nullptr && ++units == 2) child.fork();
            return unit;
        }
        std::span<pool* const> pools() const noexcept override { return all; }
        std::vector<pool*> all;
        child_that_returns& child;
        int units = 0;
    };
    fifo_pool works;
    child_that_returns child;
    int ran = 0;
    {
        execution_stream parents(std::make_unique<forks_once>(works, child));
        for (int i = 0; i < 3; ++i)
            spawn(parents, [&] { ++ran; }).join();
    }
    EXPECT_TRUE(child.was_ended());
    EXPECT_EQ(ran, 3);
}

TEST(forked_child, that_returns_from_a_pool_is_ended) {
    struct forks_once final : pool {
        explicit forks_once(child_that_returns& whom)
            : pool(pool_access::one_stream), child(whom) {}
        ~forks_once() override { drop_left(); }
        void push(work_unit& unit) noexcept override {
            works.push(unit);
            notify();
        }
        work_unit* pop() noexcept override {
            work_unit* const unit = works.pop();
            if (unit != nullptr && ++units == 2) child.fork();
            return unit;
        }
        bool empty() const noexcept override { return works.empty(); }
        std::size_t size() const noexcept override { return works.size(); }
        shared_fifo_pool works;
        child_that_returns& child;
        int units = 0;
    };
    child_that_returns child;
    forks_once works(child);
    int ran = 0;
    {
        execution_stream parents(std::make_unique<basic_scheduler>(std::vector<pool*>{&works}));
        for (int i = 0; i < 3; ++i)
            spawn(parents, [&] { ++ran; }).join();
    }
    EXPECT_TRUE(child.was_ended());
    EXPECT_EQ(ran, 3);
}

TEST(forked_child, of_a_primary_stream_is_a_plain_thread) {
    std::optional<execution_stream> main;
    main.emplace(execution_stream_options{.primary = true});
    spawn(*main, [] {}).join();
    EXPECT_EQ(in_child([&] {
                  if (this_task::in_ult()) return 1;
                  if (!refused([&] { spawn(*main, [] {}).join(); })) return 2;
                  main.reset();
                  return a_new_stream_works() ? 0 : 3;
              }),
              0);
    main.reset();
}

TEST(forked_child, finds_nothing_locked_that_other_threads_of_its_parent_had_locked) {
    std::atomic<bool> enough{false};
    std::vector<std::thread> busy;
    for (int i = 0; i < 2; ++i) {
        busy.emplace_back([&] {
            while (!enough) {
                execution_stream comes_and_goes({.driven = true});
                std::vector<ult> some;
                for (int n = 0; n < 300; ++n)
                    some.push_back(spawn(comes_and_goes, [] {}, {.stack_bytes = 16384}));
                comes_and_goes.run_ready();
            }
        });
    }
    for (int round = 0; round < (conformance::slow_build ? 10 : 100); ++round) {
        ASSERT_EQ(in_child([&] { return a_new_stream_works() ? 0 : 1; }), 0);
    }
    enough = true;
    for (std::thread& each : busy)
        each.join();
}

}  // namespace
}  // namespace amalgam
