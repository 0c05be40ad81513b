#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/shared_pools.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/sanitizer.hpp"

// Children of fork() while streams run.
// A child has one thread of several, which a leak check cannot tell.
extern "C" const char* __lsan_default_suppressions() {
    return "leak:__cxa_thread_atexit_impl\n";
}

namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// How the child ended.
int ended(pid_t child) {
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/// What `body` gives in a child.
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

/// True: it was refused, with the sentence that is about forks.
template <typename Act>
bool refused(Act act) {
    try {
        act();
    } catch (const error& why) {
        return why.code() == errc::closed &&
               std::string(why.what()).find("forked") != std::string::npos;
    }
    return false;
}

/// A new stream works. A child that ThreadSanitizer watches may start no thread when its parent has
/// run ULTs, nor does that know the child's ULTs apart.
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
        go_on.set();  // Nobody runs it here.
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

TEST(forked_child, of_a_ult_ends_with_the_body_of_the_ult) {
    execution_stream parents;
    pid_t child = 0;
    spawn(parents, [&] {
        child = ::fork();
        if (child == 0) std::atexit([] { ::_exit(7); });
    }).join();
    EXPECT_EQ(ended(child), 7) << "by exit(), as with the last thread of a process";
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
    for (int round = 0; round < (detail::sanitized ? 10 : 100); ++round) {
        ASSERT_EQ(in_child([&] { return a_new_stream_works() ? 0 : 1; }), 0);
    }
    enough = true;
    for (std::thread& each : busy)
        each.join();
}

}  // namespace
}  // namespace amalgam
