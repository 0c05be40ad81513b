#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/and_gate.hpp>
#include <amalgam/tasks/barrier.hpp>
#include <amalgam/tasks/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/coroutine.hpp>
#include <amalgam/tasks/eventual.hpp>
#include <amalgam/tasks/future.hpp>
#include <amalgam/tasks/latch.hpp>
#include <amalgam/tasks/once.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/recursive_mutex.hpp>
#include <amalgam/tasks/semaphore.hpp>
#include <amalgam/tasks/shared_mutex.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/timer.hpp>

#include "tasks/streams/stream_testing.hpp"

// Tasklets, timer callbacks and pollers run on the stream's own stack: every wait of the library is
// refused there, without side effects.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

task<int> task_that_counts(int& runs) {
    co_return ++runs;
}

struct where_nobody_waits : driven_stream_test {
    mutex plain;
    recursive_mutex recursive;
    shared_mutex shared;
    once_flag flag;
    event over, never;
    semaphore none{0};
    latch one_missing{1};
    eventual<int> unset;
    and_gate<int> open{1};
    barrier two{2};
    channel<int> empty{1}, full{1};
    mutex of_condition;
    condition_variable condition;
    promise<int> brings;
    future<int> later = brings.get_future();
    ult holder, parked;
    execution_stream elsewhere{execution_stream_options{.driven = true}};
    tasklet unjoined = spawn_tasklet(elsewhere, [] {});  // Does not run before the end.
    int runs = 0;
    task<int> not_run = task_that_counts(runs);

    std::map<std::string, std::function<void()>> waits() {
        const auto soon = 1h;
        return {
            {"mutex::lock", [this] { plain.lock(); }},
            {"mutex::try_lock_for", [this, soon] { (void)plain.try_lock_for(soon); }},
            {"recursive_mutex::lock", [this] { recursive.lock(); }},
            {"recursive_mutex::try_lock_for", [this, soon] { (void)recursive.try_lock_for(soon); }},
            {"shared_mutex::lock", [this] { shared.lock(); }},
            {"shared_mutex::lock_shared", [this] { shared.lock_shared(); }},
            {"shared_mutex::try_lock_for", [this, soon] { (void)shared.try_lock_for(soon); }},
            {"call_once", [this] { call_once(flag, [] {}); }},
            {"event::wait", [this] { never.wait(); }},
            {"event::wait_for", [this, soon] { (void)never.wait_for(soon); }},
            {"semaphore::acquire", [this] { none.acquire(); }},
            {"semaphore::try_acquire_for", [this, soon] { (void)none.try_acquire_for(soon); }},
            {"latch::wait", [this] { one_missing.wait(); }},
            {"eventual::wait", [this] { (void)unset.wait(); }},
            {"and_gate::wait", [this] { (void)open.wait(); }},
            {"barrier::arrive_and_wait", [this] { (void)two.arrive_and_wait(); }},
            {"channel::push", [this] { full.push(2); }},
            {"channel::push_for", [this, soon] { (void)full.push_for(2, soon); }},
            {"channel::pop", [this] { (void)empty.pop(); }},
            {"channel::pop_for", [this, soon] { (void)empty.pop_for(soon); }},
            {"condition_variable::wait",
             [this] {
                 std::unique_lock hold(of_condition);
                 condition.wait(hold);
             }},
            {"future::wait", [this] { (void)later.wait(); }},
            {"future::wait_for", [this, soon] { (void)later.wait_for(soon); }},
            {"ult::join", [this] { parked.join(); }},
            {"tasklet::join", [this] { unjoined.join(); }},
            {"task::get", [this] { (void)not_run.get(); }},
            {"this_task::yield", [] { this_task::yield(); }},
            {"this_task::sleep_for", [soon] { this_task::sleep_for(soon); }},
            {"waiter", [] { waiter me; }},
        };
    }

    void SetUp() override {
        full.push(1);
        holder = spawn(stream, [this] {
            const std::lock_guard a(plain);
            const std::lock_guard b(recursive);
            const std::lock_guard c(shared);
            call_once(flag, [this] { over.wait(); });
        });
        parked = spawn(stream, [this] { over.wait(); });
        run();
    }

    /// `how` runs its argument where waiting is impossible.
    void expect_refused(const std::function<void(const std::function<void()>&)>& how) {
        for (const auto& [name, wait] : waits()) {
            std::string came_to = "did not run";
            how([&came_to, &wait = wait] {
                came_to = "waited";
                try {
                    wait();
                } catch (const error& why) {
                    came_to = std::string(amalgam::name(why.code().code));
                }
            });
            EXPECT_EQ(came_to, "invalid") << name;
        }
    }

    /// No side effects: everything is still usable.
    void TearDown() override {
        EXPECT_EQ(stream.next_timer(), std::nullopt);
        EXPECT_EQ(runs, 0);
        EXPECT_EQ(not_run.valid() ? not_run.get() : 1, 1);
        over.set();
        none.release();
        one_missing.count_down();
        unset.set(1);
        open.set(1);
        brings.set_value(1);
        run();
        for (ult* each : {&holder, &parked})
            each->join();
        elsewhere.run_ready();
        unjoined.join();
        EXPECT_TRUE(plain.try_lock());
        plain.unlock();
        EXPECT_TRUE(recursive.try_lock());
        recursive.unlock();
        EXPECT_TRUE(shared.try_lock());
        shared.unlock();
        EXPECT_TRUE(of_condition.try_lock());
        of_condition.unlock();
        EXPECT_TRUE(none.try_acquire());
        EXPECT_EQ(full.try_pop(), 1);
        EXPECT_EQ(full.try_pop(), std::nullopt);
        EXPECT_EQ(empty.size(), 0u);
        EXPECT_EQ(later.get(), 1);
        bool met = false;
        run([&] { (void)two.arrive_and_wait(); });
        run([&] {
            (void)two.arrive_and_wait();
            met = true;
        });
        EXPECT_TRUE(met);
    }
};

TEST_F(where_nobody_waits, every_wait_of_a_tasklet_is_refused_and_changes_nothing) {
    expect_refused([this](const std::function<void()>& tries) {
        post_tasklet(stream, [&] { tries(); });
        run();
    });
}

TEST_F(where_nobody_waits, every_wait_of_a_timer_callback_is_refused_and_changes_nothing) {
    struct trying final : timer {
        trying(execution_stream& where, const std::function<void()>& what)
            : timer(where, [](timer& self) noexcept { static_cast<trying&>(self).tries(); }),
              tries(what) {}
        const std::function<void()>& tries;
    };
    expect_refused([this](const std::function<void()>& tries) {
        trying alarm(stream, tries);
        alarm.arm(time.now());
        run();
    });
}

TEST_F(where_nobody_waits, every_wait_of_a_poller_is_refused_and_changes_nothing) {
    struct trying final : poller {
        std::size_t poll() noexcept override {
            if (tries == nullptr) return 0;
            (*std::exchange(tries, nullptr))();
            return 1;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return tries == nullptr; }
        const std::function<void()>* tries = nullptr;
    } polled;
    stream.add_poller(polled);
    expect_refused([&](const std::function<void()>& tries) {
        polled.tries = &tries;
        run();
    });
    stream.remove_poller(polled);
}

}  // namespace
}  // namespace amalgam
