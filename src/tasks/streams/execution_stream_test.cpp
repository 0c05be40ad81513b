#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/scheduler.hpp>
#include <amalgam/tasks/ult.hpp>

#include "tasks/idle/spin_policy.hpp"
#include "tasks/limits.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(execution_stream, an_idle_one_uses_no_cpu) {
    execution_stream stream;
    spawn(stream, [] {}).join();
    const auto before = stream.cpu_time();
    // A timer of the stream ends the wait, so it slept and woke without outside help.
    spawn(stream, [] { this_task::sleep_for(200ms); }).join();
    EXPECT_LT(stream.cpu_time() - before, 20ms);
    EXPECT_GT(stream.cpu_time(), 0ns);
}

TEST(execution_stream, wakes_for_work_from_outside_each_time) {
    execution_stream stream(execution_stream_options{.spin = 0ns});
    for (int i = 0; i < 3000; ++i)
        spawn(stream, [] {}).join();
}

TEST(execution_stream, two_that_sleep_at_once_wake_each_other) {
    execution_stream left(execution_stream_options{.spin = 0ns});
    execution_stream right(execution_stream_options{.spin = 0ns});
    spawn(left, [&] {
        for (int i = 0; i < 2000; ++i)
            spawn(right, [] {}).join();
    }).join();
}

TEST(execution_stream, stop_finishes_what_is_ready_and_can_be_repeated) {
    std::atomic<int> ran = 0;
    execution_stream stream;
    for (int i = 0; i < 100; ++i) {
        post(stream, [&] {
            this_task::yield();
            ++ran;
        });
    }
    stream.stop();
    EXPECT_EQ(ran, 100);
    stream.stop();
    EXPECT_THROW(post(stream, [] {}), error);
}

TEST(execution_stream, stop_within_a_limit_leaves_work_that_never_ends) {
    execution_stream stream;
    std::atomic<bool> ends = false;
    post(stream, [&] {
        while (!ends)
            this_task::yield();
    });
    EXPECT_FALSE(stream.stop_within(1ms));
    EXPECT_FALSE(stream.stop_within(1h));  // unchanged
}

TEST(execution_stream, stop_within_a_limit_that_is_enough_says_so) {
    execution_stream stream;
    std::atomic<int> ran = 0;
    for (int i = 0; i < 10; ++i)
        post(stream, [&] { ++ran; });
    EXPECT_TRUE(stream.stop_within(std::chrono::nanoseconds::max()));
    EXPECT_EQ(ran, 10);
}

TEST(execution_stream, stop_within_shortens_a_stop_that_waits_already) {
    execution_stream stream;
    event runs;
    post(stream, [&] {
        runs.set();
        for (;;)
            this_task::yield();
    });
    runs.wait();
    std::thread waits([&] { stream.stop(); });
    EXPECT_FALSE(stream.stop_within(1ms));
    waits.join();
}

// It used to give up after one second.
TEST(execution_stream, stop_waits_for_all_that_is_ready) {
    for (const bool driven : {false, true}) {
        std::atomic<int> ran = 0;
        {
            execution_stream stream({.driven = driven});
            for (int i = 0; i < 24; ++i) {
                post(stream, [&] {
                    ::usleep(50'000);
                    ++ran;
                });
            }
        }
        EXPECT_EQ(ran, 24);
    }
}

TEST(execution_stream, stop_in_a_ult_lets_the_others_of_its_stream_run) {
    execution_stream here, stopped;
    std::atomic<bool> began = false, may_end = false;
    post(stopped, [&] {
        began = true;
        while (!may_end)
            this_task::yield();
    });
    while (!began)
        std::this_thread::yield();
    std::vector<ult> stop;
    for (int i = 0; i < 3; ++i)  // together; all wait for the same end
        stop.push_back(spawn(here, [&] { stopped.stop(); }));
    spawn(here, [&] { may_end = true; }).join();
    for (ult& each : stop)
        each.join();
    EXPECT_THROW(post(stopped, [] {}), error);
}

TEST(execution_stream, stop_in_a_tasklet_waits_for_the_end) {
    execution_stream here, stopped;
    std::atomic<bool> ran = false;
    post(stopped, [&] { ran = true; });
    spawn_tasklet(here, [&] { stopped.stop(); }).join();
    EXPECT_TRUE(ran);
}

TEST(execution_stream, bad_use_is_refused) {
    EXPECT_THROW(execution_stream(execution_stream_options{.cpu = 100000}), error);
    execution_stream stream;
    EXPECT_THROW(stream.run_ready(), error);
    std::atomic<bool> refused = false;
    spawn(stream, [&] {
        try {
            stream.stop();
        } catch (const error& why) {
            refused = why.code() == errc::invalid;
        }
    }).join();
    EXPECT_TRUE(refused);

    execution_stream driven(execution_stream_options{.driven = true});
    bool nested_refused = false;
    post(driven, [&] {
        try {
            driven.run_ready();
        } catch (const error&) {
            nested_refused = true;
        }
    });
    driven.run_ready();
    EXPECT_TRUE(nested_refused);
}

TEST(execution_stream, shows_the_first_15_characters_of_its_name_to_the_system) {
    execution_stream stream(execution_stream_options{.name = "a name of twenty-six chars"});
    std::array<char, 64> seen{};
    spawn(stream, [&] { ::pthread_getname_np(::pthread_self(), seen.data(), seen.size()); }).join();
    EXPECT_STREQ(seen.data(), "a name of twent");
    EXPECT_EQ(stream.name(), "a name of twenty-six chars");
}

TEST(execution_stream, is_bound_to_the_core_asked_for) {
    cpu_set_t allowed;
    ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int last = 0;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &allowed)) last = i;
    }
    execution_stream stream(execution_stream_options{.name = "pinned", .cpu = last});
    EXPECT_EQ(stream.name(), "pinned");
    spawn(stream, [&] {
        cpu_set_t mine;
        ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
        EXPECT_EQ(CPU_COUNT(&mine), 1);
        EXPECT_TRUE(CPU_ISSET(last, &mine));
    }).join();
}

TEST(execution_stream, one_inside_another_switches_apart) {
    execution_stream outer(execution_stream_options{.driven = true});
    execution_stream inner(execution_stream_options{.driven = true});
    std::string order;
    post(inner, [&] {
        order += "b";
        EXPECT_EQ(execution_stream::current(), &inner);
        this_task::yield();
        order += "c";
    });
    post(outer, [&] {
        order += "a";
        inner.run_ready();
        EXPECT_EQ(execution_stream::current(), &outer);
        this_task::yield();
        order += "d";
    });
    outer.run_ready();
    EXPECT_EQ(order, "abcd");
}

/// Counts what is written to an eventfd.
struct counting_poller final : poller {
    std::size_t poll() noexcept override {
        std::uint64_t rings = 0;
        if (::read(fd.get(), &rings, sizeof rings) != sizeof rings) return 0;
        arrived.fetch_add(static_cast<long>(rings));
        if (arrived.load() >= enough) done.set();
        return 1;
    }
    int wait_handle() const noexcept override { return fd.get(); }
    bool prepare_to_sleep() noexcept override { return true; }
    void ring() const {
        const std::uint64_t one = 1;
        ASSERT_EQ(::write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }

    unique_fd fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    std::atomic<long> arrived{0};
    long enough = 1;
    event done;
};

TEST(poller, its_wait_handle_wakes_a_sleeping_stream) {
    execution_stream stream(execution_stream_options{.spin = 0ns});
    for (int i = 0; i < 200; ++i) {
        counting_poller source;
        stream.add_poller(source);
        source.ring();
        source.done.wait();
        stream.remove_poller(source);
    }
}

TEST(poller, is_polled_while_the_stream_is_busy) {
    execution_stream stream;
    counting_poller source;
    stream.add_poller(source);
    std::atomic<bool> arrived = false;
    spawn(stream, [&] {
        source.ring();
        while (source.arrived == 0)
            this_task::yield();
        arrived = true;
    }).join();
    EXPECT_TRUE(arrived);
    stream.remove_poller(source);
}

TEST(poller, once_removed_is_not_touched) {
    execution_stream stream(execution_stream_options{.spin = always_spin});
    struct brief final : poller {
        std::size_t poll() noexcept override {
            ++polls;
            return 0;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        std::atomic<long> polls{0};
    };
    for (int i = 0; i < 500; ++i) {
        auto source = std::make_unique<brief>();
        stream.add_poller(*source);
        if (i % 2 == 0) {
            stream.remove_poller(*source);
        } else {
            spawn(stream, [&] { stream.remove_poller(*source); }).join();
        }
    }
    brief never_added;
    EXPECT_THROW(stream.remove_poller(never_added), error);
}

// Removal stops watching its wait handle, or it could not be watched again.
TEST(poller, may_be_added_again_after_it_was_removed) {
    execution_stream stream(execution_stream_options{.spin = 0ns});
    counting_poller source;
    for (int i = 0; i < 3; ++i) {
        stream.add_poller(source);
        EXPECT_THROW(stream.add_poller(source), error);
        stream.remove_poller(source);
    }
    stream.add_poller(source);
    source.ring();
    source.done.wait();
    stream.remove_poller(source);
}

TEST(poller, of_a_stream_that_never_sleeps_is_polled_and_removed) {
    execution_stream stream({.driven = true});
    counting_poller source;
    stream.add_poller(source);
    source.ring();
    while (source.arrived == 0)
        stream.run_ready();
    stream.remove_poller(source);
    EXPECT_THROW(stream.remove_poller(source), error);
}

TEST(execution_stream, that_cannot_be_made_leaves_its_pools_to_others) {
    fifo_pool where;
    const auto make = [&](int cpu) {
        return std::make_unique<execution_stream>(
            std::make_unique<basic_scheduler>(std::vector<pool*>{&where}),
            execution_stream_options{.cpu = cpu});
    };
    EXPECT_THROW(make(100000), error);
    EXPECT_FALSE(where.served());
    const auto made = make(-1);
    spawn(where, [] {}).join();
}

TEST(poller, may_remove_itself_while_polled) {
    execution_stream stream(execution_stream_options{.driven = true});
    struct once final : poller {
        explicit once(execution_stream& where) : home(where) {}
        std::size_t poll() noexcept override {
            home.remove_poller(*this);
            return static_cast<std::size_t>(++polls);
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        execution_stream& home;
        int polls = 0;
    };
    once first(stream), second(stream);
    stream.add_poller(first);
    stream.add_poller(second);
    stream.run_ready();
    stream.run_ready();
    EXPECT_EQ(first.polls + second.polls, 2);
}

TEST(poller, removed_by_another_one_is_not_polled_any_more) {
    execution_stream stream(execution_stream_options{.driven = true});
    struct remover final : poller {
        remover(execution_stream& where, poller& of) : home(where), gone(of) {}
        std::size_t poll() noexcept override {
            if (std::exchange(removed, true)) return 0;
            home.remove_poller(gone);
            return 1;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }
        execution_stream& home;
        poller& gone;
        bool removed = false;
    };
    counting_poller second;
    remover first(stream, second);
    stream.add_poller(first);
    stream.add_poller(second);
    second.ring();
    stream.run_ready();
    stream.run_ready();
    EXPECT_TRUE(first.removed);
    EXPECT_EQ(second.arrived, 0);
    stream.remove_poller(first);
}

TEST(poller, without_a_handle_is_polled_after_wake) {
    execution_stream stream(execution_stream_options{.spin = 0ns});
    struct flagged final : poller {
        std::size_t poll() noexcept override {
            if (!work.exchange(false)) return 0;
            done.set();
            return 1;
        }
        int wait_handle() const noexcept override { return -1; }
        bool prepare_to_sleep() noexcept override { return true; }  // relies on wake() alone
        std::atomic<bool> work{false};
        event done;
    };
    flagged source;
    stream.add_poller(source);
    for (int i = 0; i < 1000; ++i) {
        source.work = true;
        stream.wake();
        source.done.wait();
        source.done.reset();
    }
    stream.remove_poller(source);
}

TEST(poller, with_a_handle_that_cannot_be_waited_on_is_refused) {
    execution_stream stream;
    counting_poller source;
    source.fd.reset(1 << 20);
    EXPECT_THROW(stream.add_poller(source), error);
    (void)source.fd.release();
}

TEST(spin_policy, spins_longer_when_it_pays_and_less_when_not) {
    detail::spin_policy adaptive(adaptive_spin);
    for (int i = 0; i < 20; ++i)
        adaptive.slept(1ms);
    EXPECT_EQ(adaptive.limit(), detail::limits::min_spin);
    for (int i = 0; i < 20; ++i)
        adaptive.slept(1us);
    EXPECT_EQ(adaptive.limit(), detail::limits::max_spin);
    detail::spin_policy fixed(7us);
    fixed.slept(1ms);
    EXPECT_EQ(fixed.limit(), 7us);
}

}  // namespace
}  // namespace amalgam
