#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {

// Not in the unnamed namespace: exported, so that traces have its name. Optimizers would make
// unexported copies of it for each depth.
#if defined(__clang__)
[[clang::optnone]]
#else
[[gnu::noipa]]
#endif
[[gnu::noinline]] void
wait_deep_inside(event& what, int depth) {
    if (depth == 0) {
        what.wait();
    } else {
        wait_deep_inside(what, depth - 1);
    }
    asm volatile("");  // no tail call
}

namespace {

using namespace std::chrono_literals;

std::optional<ult_info> find(const std::string& name, bool with_traces = false) {
    for (ult_info& each : list_ults(with_traces)) {
        if (each.name == name) return std::move(each);
    }
    return std::nullopt;
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
    EXPECT_TRUE(seen->trace.empty());
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
    // Two clocks are compared, so not to the last nanosecond.
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

#if defined(__x86_64__)
TEST_F(inspect, a_suspended_stack_is_read_where_it_lies) {
    event happens;
    ult task = spawn(stream, [&] { wait_deep_inside(happens, 3); }, {.name = "deep"});
    stream.run_ready();
    const auto seen = find("deep", true);
    ASSERT_TRUE(seen);
    const auto inside =
        std::count_if(seen->trace.begin(), seen->trace.end(), [](const ult_frame& each) {
            return each.text.find("wait_deep_inside") != std::string::npos;
        });
    std::string texts;
    for (const ult_frame& each : seen->trace)
        texts += each.text + "\n";
    EXPECT_EQ(inside, 4) << texts;
    EXPECT_TRUE(find("deep")->trace.empty());
    happens.set();
    stream.run_ready();
    task.join();
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

/// Everything that is written to standard error while it lives.
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
        EXPECT_NE(line.find("waits for event, stream 'lab'"), std::string::npos) << line;
    }
    happens.set();
    stream.run_ready();
    task.join();
}

TEST(inspect_signals, one_that_cannot_be_handled_is_refused) {
    EXPECT_THROW(print_ults_on_signal(SIGKILL), error);
}

}  // namespace
}  // namespace amalgam
