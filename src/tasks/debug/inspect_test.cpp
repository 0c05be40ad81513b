#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/extension/ult_snapshot.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/shared_mutex.hpp>
#include <amalgam/tasks/ult.hpp>

#include "emulated.hpp"
#include "tasks/debug/trace_testing.hpp"
#include "tasks/stacks/suspended_stack.hpp"

namespace amalgam {

AMALGAM_IN_TRACES void wait_deep_inside(event& what, int depth) {
    if (depth == 0) {
        what.wait();
    } else {
        wait_deep_inside(what, depth - 1);
    }
    asm volatile("");  // no tail call
}

AMALGAM_IN_TRACES void compute_until(const std::atomic<bool>& enough) {
    std::mutex mine;
    // ThreadSanitizer delivers signals only at calls it intercepts.
    while (!enough)
        const std::lock_guard hold(mine);
}

AMALGAM_IN_TRACES void yield_until(const std::atomic<bool>& enough) {
    while (!enough)
        this_task::yield();
}

namespace {

using namespace std::chrono_literals;

std::optional<ult_info> find(const std::string& name, bool with_traces = false) {
    for (ult_info& each : list_ults(with_traces)) {
        if (each.name == name) return std::move(each);
    }
    return std::nullopt;
}

[[maybe_unused]] std::ptrdiff_t calls_of(const ult_info& who, std::string_view function) {
    return std::count_if(who.trace.begin(), who.trace.end(), [&](const ult_frame& each) {
        return each.text.find(function) != std::string::npos;
    });
}

struct inspect : testing::Test {
    manual_clock time;
    execution_stream stream{
        execution_stream_options{.name = "lab", .clock = &time, .driven = true}};

    std::string wait_of(const std::string& name) {
        const auto seen = find(name);
        return seen && seen->state == ult_state::parked ? seen->waits_for : "nothing";
    }
};

TEST_F(inspect, tells_what_each_ult_waits_for) {
    event happens;
    mutex guard;
    channel<int> queue(1);
    promise<int> brings;
    auto value = brings.get_future();
    guard.lock();
    ult all[] = {spawn(stream, [&] { happens.wait(); }, {.name = "e"}),
                 spawn(stream, [&] { const std::lock_guard hold(guard); }, {.name = "m"}),
                 spawn(stream, [&] { queue.pop(); }, {.name = "c"}),
                 spawn(stream, [&] { value.get(); }, {.name = "f"}),
                 spawn(stream, [] { this_task::sleep_for(1h); }, {.name = "s"})};
    ult joins = spawn(stream, [&] { all[0].join(); }, {.name = "j"});
    EXPECT_EQ(find("e")->state, ult_state::ready);
    stream.run_ready();
    EXPECT_EQ(wait_of("e"), "event");
    EXPECT_EQ(wait_of("m"), "mutex");
    EXPECT_EQ(wait_of("c"), "channel");
    EXPECT_EQ(wait_of("f"), "future");
    EXPECT_EQ(wait_of("s"), "sleep");
    EXPECT_EQ(wait_of("j"), "join");
    EXPECT_EQ(find("e")->stream, "lab");
    EXPECT_EQ(find("e")->home, &stream.main_pool());

    happens.set();
    EXPECT_EQ(find("e")->state, ult_state::ready);
    guard.unlock();
    queue.push(1);
    brings.set_value(1);
    stream.run_ready();
    time.advance(1h);
    stream.run_ready();
    joins.join();
    for (ult& each : all) {
        if (each.joinable()) each.join();
    }
    EXPECT_FALSE(find("e"));
    EXPECT_FALSE(find("s"));
}

TEST_F(inspect, a_ult_sees_itself_running) {
    std::optional<ult_info> seen;
    ult task = spawn(stream, [&] { seen = find("me", true); }, {.name = "me"});
    stream.run_ready();
    task.join();
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->state, ult_state::running);
    EXPECT_EQ(seen->stream, "lab");
#if defined(AMALGAM_OWN_STACK_SWITCH)
    EXPECT_EQ(calls_of(*seen, "list_ults"), 1);
#endif
}

TEST_F(inspect, a_wait_is_as_long_as_it_lasted) {
    event happens;
    const auto before = std::chrono::steady_clock::now();
    ult task = spawn(stream, [&] { happens.wait(); }, {.name = "waits"});
    stream.run_ready();
    const auto parked = std::chrono::steady_clock::now();
    std::chrono::nanoseconds waited{};
    while (waited < 5ms)
        waited = find("waits")->waited;
    const auto after = std::chrono::steady_clock::now();
    // Two clocks are compared, so not exact.
    EXPECT_LE(waited, (after - before) * 11 / 10);
    while (std::chrono::steady_clock::now() - parked < 20ms)
        continue;
    EXPECT_GE(find("waits")->waited, 18ms);
    happens.set();
    stream.run_ready();
    task.join();
}

TEST_F(inspect, sees_each_of_more_ults_than_it_holds_at_once_and_lets_all_go) {
    event happens;
    std::vector<ult> all(1000);
    for (ult& each : all)
        each = spawn(stream, [&] { happens.wait(); }, {.name = "one of many"});
    stream.run_ready();
    std::set<const void*> parked;
    for (const ult_info& each : list_ults()) {
        if (each.name == "one of many" && each.state == ult_state::parked) parked.insert(each.id);
    }
    EXPECT_EQ(parked.size(), all.size());
    happens.set();
    EXPECT_GE(stream.run_ready(), all.size());
    for (ult& each : all)
        each.join();
    EXPECT_FALSE(find("one of many"));
}

#if defined(AMALGAM_OWN_STACK_SWITCH)
TEST_F(inspect, a_suspended_stack_is_read_where_it_lies) {
    event happens;
    ult task = spawn(stream, [&] { wait_deep_inside(happens, 3); }, {.name = "deep"});
    stream.run_ready();
    const auto seen = find("deep", true);
    ASSERT_TRUE(seen);
    std::string texts;
    for (const ult_frame& each : seen->trace)
        texts += each.text + "\n";
    EXPECT_EQ(calls_of(*seen, "wait_deep_inside"), 4) << texts;
    EXPECT_TRUE(find("deep")->trace.empty());
    happens.set();
    stream.run_ready();
    task.join();
}

TEST(inspect_running, is_traced_while_it_computes) {
    execution_stream one, two;
    std::atomic<bool> enough{false};
    ult tasks[] = {spawn(one, [&] { compute_until(enough); }, {.name = "computes"}),
                   spawn(two, [&] { compute_until(enough); }, {.name = "computes"})};
    std::set<const void*> traced;
    while (traced.size() < 2) {
        for (const ult_info& each : list_ults(true)) {
            if (calls_of(each, "compute_until") == 1) traced.insert(each.id);
        }
    }
    EXPECT_TRUE(find("computes")->trace.empty());
    enough = true;
    for (ult& each : tasks)
        each.join();
}

TEST(inspect_running, is_traced_in_the_middle_of_switches) {
    execution_stream stream;
    std::atomic<bool> enough{false};
    const auto turn = [&] { yield_until(enough); };
    ult tasks[] = {spawn(stream, turn, {.name = "yields"}),
                   spawn(stream, turn, {.name = "yields"})};
    int lost = 0;
    for (int traced = 0; traced < 500;) {
        for (const ult_info& each : list_ults(true)) {
            if (each.state != ult_state::running || each.trace.empty()) continue;
            ++traced;
            if (calls_of(each, "yield_until") != 1 || calls_of(each, "ult_main") != 1) ++lost;
        }
    }
    // At any instruction the unwinder must find the way out, except for clang, whose unwind tables
    // are off by one instruction at the end of other functions.
#if defined(__clang__)
    EXPECT_LT(lost, 50);
#else
    EXPECT_EQ(lost, 0);
#endif
    enough = true;
    for (ult& each : tasks)
        each.join();
}

TEST(inspect_running, has_no_trace_when_its_thread_blocks_the_signal_or_the_program_has_it) {
    const int number = SIGRTMAX - 2;
    execution_stream stream;
    std::atomic<bool> blocks{false}, enough{false};
    ult task = spawn(stream,
                     [&] {
                         sigset_t all;
                         sigset_t before;
                         sigfillset(&all);
                         ::pthread_sigmask(SIG_BLOCK, &all, &before);
                         blocks = true;
                         compute_until(enough);
                         ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
                     },
                     {.name = "blocks"});
    while (!blocks)
        std::this_thread::yield();
    EXPECT_TRUE(find("blocks", true)->trace.empty());
    enough = true;
    task.join();  // a late signal is not answered

    struct sigaction before {};
    struct sigaction users {};
    users.sa_handler = SIG_IGN;
    ASSERT_EQ(::sigaction(number, &users, &before), 0);
    enough = false;
    task = spawn(stream, [&] { compute_until(enough); }, {.name = "computes"});
    while (find("computes")->state != ult_state::running)
        std::this_thread::yield();
    EXPECT_TRUE(find("computes", true)->trace.empty());
    enough = true;
    task.join();
    ::sigaction(number, &before, nullptr);
}
#endif

TEST(inspect_busy, looks_at_ults_that_start_switch_and_end_meanwhile) {
    execution_stream one, two;
    std::atomic<bool> enough{false};
    const auto churn = [&] {
        event happens;
        while (!enough) {
            happens.reset();
            ult waits = spawn([&] { happens.wait(); }, {.name = "waits"});
            ult short_lived = spawn([] { this_task::yield(); }, {.name = "short"});
            this_task::yield();
            happens.set();
            waits.join();
            short_lived.join();
        }
    };
    ult busy[] = {spawn(one, churn, {.name = "busy"}), spawn(two, churn, {.name = "busy"})};
    for (int i = 0; i < 200; ++i) {
        const auto all = list_ults(true);
        EXPECT_EQ(std::count_if(all.begin(), all.end(),
                                [](const ult_info& each) { return each.name == "busy"; }),
                  2);
    }
    enough = true;
    for (ult& each : busy)
        each.join();
}

/// Captures everything written to standard error while it exists.
class standard_error {
public:
    standard_error() : before_(::dup(STDERR_FILENO)) {
        int ends[2];
        EXPECT_EQ(::pipe(ends), 0);
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[1]);
        read_end_ = ends[0];
    }
    ~standard_error() {
        ::dup2(before_, STDERR_FILENO);
        ::close(before_);
        ::close(read_end_);
    }
    std::string read_until(const std::string& wanted) {
        std::string all;
        char one = 0;
        while (all.find(wanted) == std::string::npos && ::read(read_end_, &one, 1) == 1)
            all += one;
        return all;
    }

private:
    int before_;
    int read_end_ = -1;
};

TEST_F(inspect, a_signal_prints_to_standard_error_and_the_program_goes_on) {
    event happens;
    ult task = spawn(stream, [&] { happens.wait(); }, {.name = "printed"});
    stream.run_ready();
    print_ults_on_signal(SIGUSR1);
    {
        standard_error told;
        ::raise(SIGUSR1);
        told.read_until("ULT 'printed'");
        const auto line = told.read_until("\n");
        EXPECT_NE(line.find("parked for"), std::string::npos) << line;
        EXPECT_NE(line.find("waiting for event, stream 'lab'"), std::string::npos) << line;
    }
    happens.set();
    stream.run_ready();
    task.join();
}

TEST_F(inspect, a_child_does_not_make_its_parent_print) {
    event happens;
    ult first = spawn(stream, [&] { happens.wait(); }, {.name = "in-both"});
    stream.run_ready();
    print_ults_on_signal(SIGUSR1);
    standard_error told;
    const pid_t child = ::fork();
    if (child == 0) {
        ::raise(SIGUSR1);
        ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    happens.set();
    stream.run_ready();
    first.join();
    happens.reset();
    ult second = spawn(stream, [&] { happens.wait(); }, {.name = "later"});
    stream.run_ready();
    ::raise(SIGUSR1);
    const std::string said = told.read_until("ULT 'later'");
    EXPECT_EQ(said.find("in-both"), std::string::npos) << said;
    happens.set();
    stream.run_ready();
    second.join();
}

TEST_F(inspect, what_cannot_be_printed_is_left_out_and_the_program_goes_on) {
    event happens;
    ult one = spawn(stream, [&] { happens.wait(); }, {.name = "unseen"});
    stream.run_ready();
    print_ults(-1);
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_NONBLOCK | O_CLOEXEC), 0);
    unique_fd reads(ends[0]), writes(ends[1]);
    const std::string filler(4096, 'x');
    while (::write(writes.get(), filler.data(), filler.size()) > 0)
        continue;
    print_ults(writes.get());  // It is full.
    reads.reset();
    print_ults(writes.get());  // No reader: SIGPIPE ends a program by default.
    happens.set();
    stream.run_ready();
    one.join();
}

/// Of one that waits for a mutex or a join.
std::string name_awaited_by(const std::string& name) {
    const auto waits = find(name);
    if (!waits || waits->waits_for_ult == nullptr) return "nobody";
    for (const ult_info& each : list_ults())
        if (each.id == waits->waits_for_ult) return each.name;
    return "one that is gone";
}

TEST_F(inspect, tells_which_ult_holds_the_mutex_that_another_waits_for) {
    mutex accounts;
    event first_ends, second_ends;
    const auto lock_until = [&](event& ends) {
        const std::lock_guard hold(accounts);
        ends.wait();
    };
    ult first = spawn(stream, [&] { lock_until(first_ends); }, {.name = "first"});
    stream.run_ready();
    ult second = spawn(stream, [&] { lock_until(second_ends); }, {.name = "second"});
    ult third = spawn(stream, [&] { accounts.lock(lock_priority::low), accounts.unlock(); },
                      {.name = "third"});
    stream.run_ready();
    EXPECT_EQ(wait_of("second"), "mutex");
    EXPECT_EQ(name_awaited_by("second"), "first");
    EXPECT_EQ(name_awaited_by("third"), "first");
    first_ends.set();
    stream.run_ready();
    EXPECT_EQ(name_awaited_by("third"), "second");  // To whom the first one has handed it.
    second_ends.set();
    stream.run_ready();
    for (ult* each : {&first, &second, &third})
        each->join();
}

TEST_F(inspect, tells_who_writes_and_how_many_read_what_a_shared_mutex_protects) {
    shared_mutex ledger;
    event first_ends, second_ends, readers_end;
    const auto write_until = [&](event& ends) {
        const std::lock_guard hold(ledger);
        ends.wait();
    };
    const auto read = [&] {
        const std::shared_lock hold(ledger);
        readers_end.wait();
    };
    ult first = spawn(stream, [&] { write_until(first_ends); }, {.name = "first"});
    stream.run_ready();
    ult second = spawn(stream, [&] { write_until(second_ends); }, {.name = "second"});
    ult third = spawn(stream, read, {.name = "third"});
    ult fourth = spawn(stream, read, {.name = "fourth"});
    stream.run_ready();
    EXPECT_EQ(wait_of("third"), "shared mutex");
    EXPECT_EQ(name_awaited_by("second"), "first");
    EXPECT_EQ(name_awaited_by("third"), "first");
    EXPECT_EQ(find("third")->mutex, &ledger);
    EXPECT_EQ(find("third")->readers, 0u);
    first_ends.set();
    stream.run_ready();
    EXPECT_EQ(name_awaited_by("third"), "second");  // Which was served when it had waited.
    second_ends.set();
    stream.run_ready();
    ult fifth = spawn(stream, [&] { write_until(second_ends); }, {.name = "fifth"});
    stream.run_ready();
    EXPECT_EQ(name_awaited_by("fifth"), "nobody");
    EXPECT_EQ(find("fifth")->readers, 2u);
    readers_end.set();
    stream.run_ready();
    for (ult* each : {&first, &second, &third, &fourth, &fifth})
        each->join();
}

TEST_F(inspect, tells_which_mutex_goes_with_a_condition) {
    mutex accounts;
    condition_variable changed;
    ult waits = spawn(stream,
                      [&] {
                          std::unique_lock hold(accounts);
                          changed.wait(hold);
                      },
                      {.name = "waits"});
    stream.run_ready();
    EXPECT_EQ(wait_of("waits"), "condition variable");
    EXPECT_EQ(find("waits")->mutex, &accounts);
    EXPECT_EQ(name_awaited_by("waits"), "nobody");
    {
        const std::lock_guard hold(accounts);
        changed.notify_one();
        stream.run_ready();
        EXPECT_EQ(wait_of("waits"), "mutex");
        EXPECT_EQ(find("waits")->mutex, &accounts);
    }
    stream.run_ready();
    waits.join();
}

TEST_F(inspect, tells_which_ult_another_joins) {
    event happens;
    ult child = spawn(stream, [&] { happens.wait(); }, {.name = "child"});
    ult parent = spawn(stream, [&] { child.join(); }, {.name = "parent"});
    stream.run_ready();
    EXPECT_EQ(wait_of("parent"), "join");
    EXPECT_EQ(name_awaited_by("parent"), "child");
    EXPECT_EQ(name_awaited_by("child"), "nobody");
    happens.set();
    stream.run_ready();
    parent.join();
}

TEST_F(inspect, looks_at_some_ults_and_those_they_wait_for) {
    mutex accounts;
    event happens;
    const void* on_stack = nullptr;
    ult holds = spawn(stream,
                      [&] {
                          const std::lock_guard hold(accounts);
                          on_stack = &hold;
                          happens.wait();
                      },
                      {.name = "holds"});
    stream.run_ready();
    ult waits = spawn(stream, [&] { const std::lock_guard hold(accounts); }, {.name = "waits"});
    ult other = spawn(stream, [&] { happens.wait(); }, {.name = "other"});
    stream.run_ready();
    const std::vector<const void*> one{find("waits")->id}, missing{&happens};
    const auto two = detail::snapshot_ults(one, 10);
    ASSERT_EQ(two.size(), 2u);
    EXPECT_EQ(two[0].info.name, "waits");
    EXPECT_EQ(two[0].info.waits_for_ult, two[1].info.id);
    EXPECT_EQ(two[1].info.name, "holds");
    EXPECT_EQ(two[1].info.waits_for, "event");
    EXPECT_EQ(detail::snapshot_ults(one, 1).size(), 1u);
    EXPECT_TRUE(detail::snapshot_ults(missing, 10).empty());
#if !defined(__SANITIZE_ADDRESS__)
    const std::vector<const void*> addresses{&happens, on_stack, nullptr};
    EXPECT_EQ(detail::ults_at(addresses),
              (std::vector<const void*>{nullptr, find("holds")->id, nullptr}));
#endif
    happens.set();
    stream.run_ready();
    for (ult* each : {&holds, &waits, &other})
        each->join();
}

TEST_F(inspect, tells_which_sleeping_thread_holds_a_mutex) {
    if (::access("/proc/self/syscall", R_OK) != 0)
        GTEST_SKIP() << "this kernel does not say where the stacks of sleeping threads are";
    if (is_emulated()) GTEST_SKIP() << "under qemu that tells of qemu's own stacks";
    mutex accounts;
    std::atomic<int> id = 0;
    std::atomic<bool> enough = false;
    std::thread holder([&] {
        const std::lock_guard hold(accounts);
        ::prctl(PR_SET_NAME, "keeper");
        id = ::gettid();
        id.notify_one();
        enough.wait(false);
    });
    id.wait(0);
    ult waits = spawn(stream, [&] { const std::lock_guard hold(accounts); }, {.name = "waits"});
    stream.run_ready();
    const std::vector<const void*> one{find("waits")->id};
    detail::ult_snapshot seen;
    detail::sleeping_threads::thread whose;
    while (whose.id == 0) {  // Until it sleeps.
        seen = detail::snapshot_ults(one, 10).at(0);
        whose = detail::sleeping_threads().at(seen.holder_page);
    }
    EXPECT_EQ(seen.info.waits_for_ult, nullptr);
    EXPECT_EQ(whose.id, id);
    EXPECT_EQ(whose.name, "keeper");
    enough = true;
    enough.notify_one();
    holder.join();
    stream.run_ready();
    waits.join();
}

TEST_F(inspect, of_a_name_the_first_23_characters_are_kept) {
    event happens;
    const std::string long_name = "a name of more than 23 characters, thrown away by now";
    ult one = spawn(stream, [&] { happens.wait(); }, {.name = long_name});
    ult other = spawn(stream, [&] { happens.wait(); }, {.name = long_name.substr(0, 22)});
    stream.run_ready();
    EXPECT_EQ(wait_of(long_name.substr(0, 23)), "event");
    EXPECT_EQ(wait_of(long_name.substr(0, 22)), "event");
    happens.set();
    stream.run_ready();
    one.join();
    other.join();
}

TEST(activity, tells_sleep_and_the_longest_hold) {
    execution_stream one({.name = "one", .spin = std::chrono::nanoseconds(0)});
    while (activity_of(one).sleeps < 2)
        spawn(one, [] {}).join();
    const auto began = std::chrono::steady_clock::now();
    const stream_activity before = activity_of(one);
    EXPECT_GT(before.asleep.count(), 0);
    EXPECT_EQ(before.steals, 0u);
    const auto hold = std::chrono::milliseconds(30);
    std::atomic<bool> holds = false;
    ult held = spawn(one, [&] {
        const auto here = std::chrono::steady_clock::now();
        holds = true;
        while (std::chrono::steady_clock::now() < here + hold) {
        }
    });
    while (!holds)
        std::this_thread::yield();
    held.join();
    while (one.state() != stream_state::asleep)  // A joined ULT's batch may still be ending.
        std::this_thread::yield();
    const stream_activity after = activity_of(one);
    const auto passed = std::chrono::steady_clock::now() - began;
    EXPECT_GE(after.longest_hold, hold / 2);  // Ticks and clock may differ a little.
    EXPECT_GE(after.asleep, before.asleep);
    EXPECT_LE(after.asleep - before.asleep, passed);
    const auto asleep = activity_of(one).asleep;
    while (activity_of(one).asleep == asleep) {  // It grows while the sleep lasts.
    }
}

TEST(inspect_signals, one_that_cannot_be_handled_is_refused) {
    EXPECT_THROW(print_ults_on_signal(SIGKILL), error);
}

}  // namespace
}  // namespace amalgam
