#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/fifo_pool.hpp>
#include <amalgam/tasks/inspect.hpp>
#include <amalgam/tasks/looping_scheduler.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/task_hook.hpp>
#include <amalgam/tasks/tasklet.hpp>
#include <amalgam/tasks/ult.hpp>

namespace amalgam {
namespace {

const execution_stream_options driven{.driven = true};

/// What happened to units, as "a:running a:ended …".
class written_down {
public:
    void operator()(const task_event_info& what) {
        const std::lock_guard hold(lock_);
        if (what.id == nullptr) {
            text_ += what.what == task_event::stream_started ? "+ " : "- ";
            return;
        }
        const char* const kinds[] = {"", "tasklet", "other"};
        text_ += what.kind == unit_kind::ult ? std::string(what.name)
                                             : kinds[static_cast<int>(what.kind)];
        text_ += ':';
        text_ += name(what.what);
        if (what.waits_for != nullptr) text_ += std::string("(") + what.waits_for + ")";
        text_ += ' ';
    }
    std::string text() {
        const std::lock_guard hold(lock_);
        return std::exchange(text_, {});
    }

private:
    std::mutex lock_;
    std::string text_;
};

TEST(task_hook, tells_the_life_of_ults_in_order) {
    written_down seen;
    execution_stream stream(driven);
    const task_hook hook(std::ref(seen));
    event go;
    post(stream,
         [&] {
             this_task::yield();
             go.wait();
         },
         {.name = "a"});
    post(stream, [&] { this_task::yield(); }, {.name = "b"});
    EXPECT_EQ(seen.text(), "a:created b:created ");
    stream.run_ready();
    EXPECT_EQ(
        seen.text(),
        "a:running a:yielded b:running b:yielded a:running a:parked(event) b:running b:ended ");
    go.set();
    EXPECT_EQ(seen.text(), "a:resumed ");
    stream.run_ready();
    EXPECT_EQ(seen.text(), "a:running a:ended ");
}

TEST(task_hook, tells_of_joins_and_cancels) {
    written_down seen;
    execution_stream stream(driven);
    const task_hook hook(std::ref(seen));
    post(stream,
         [] {
             ult inner = spawn([] {}, {.name = "in"});
             inner.join();
             ult never = spawn([] {}, {.name = "no"});
             never.cancel();
             EXPECT_THROW(never.join(), error);
         },
         {.name = "out"});
    stream.run_ready();
    EXPECT_EQ(seen.text(),
              "out:created out:running in:created out:parked(join) in:running in:ended out:running "
              "no:created no:canceled out:parked(join) no:running no:ended out:running out:ended ");
}

TEST(task_hook, tells_of_tasklets_and_streams) {
    written_down seen;
    const task_hook hook(std::ref(seen));
    {
        execution_stream stream(driven);
        post_tasklet(stream, [] {});
        stream.run_ready();
        stream.stop();
        stream.revive();
    }
    EXPECT_EQ(seen.text(), "+ tasklet:created tasklet:running tasklet:ended - + - ");
}

TEST(task_hook, sees_the_units_of_a_looping_scheduler) {
    struct looping final : looping_scheduler {
        explicit looping(pool& which) : mine(&which) {}
        void run(scheduler_loop& loop) override {
            while (!loop.should_stop()) {
                work_unit* const unit = mine->pop();
                if (unit == nullptr) return;
                loop.run(*unit);
            }
        }
        std::span<pool* const> pools() const noexcept override { return {&mine, 1}; }
        pool* mine;
    };
    written_down seen;
    fifo_pool mine;
    execution_stream stream(std::make_unique<looping>(mine), driven);
    const task_hook hook(std::ref(seen));
    post(mine, [] { this_task::yield(); }, {.name = "a"});
    post_tasklet(mine, [] {});
    stream.run_ready();
    EXPECT_EQ(seen.text(),
              "a:created tasklet:created a:running a:yielded tasklet:running "
              "tasklet:ended a:running a:ended ");
}

TEST(task_hook, once_destroyed_is_not_called_and_others_go_on) {
    written_down first, second;
    execution_stream stream(driven);
    auto one = std::make_optional<task_hook>(std::ref(first));
    const task_hook two(std::ref(second));
    post(stream, [] {}, {.name = "a"});
    one.reset();
    stream.run_ready();
    EXPECT_EQ(first.text(), "a:created ");
    EXPECT_EQ(second.text(), "a:created a:running a:ended ");
}

TEST(task_hook, comes_and_goes_while_streams_run) {
    std::atomic<bool> end{false};
    execution_stream one, two;
    std::vector<ult> all;
    for (execution_stream* each : {&one, &two}) {
        for (int i = 0; i < 4; ++i) {
            all.push_back(spawn(*each, [&] {
                while (!end) {
                    spawn([] { this_task::yield(); }).join();
                    try {
                        throw 1;
                    } catch (int) {
                        this_task::yield();
                    }
                }
            }));
        }
    }
    for (int i = 0; i < 50; ++i) {
        std::atomic<int> told{0};
        const auto counts = std::make_unique<task_hook>([&](const task_event_info&) { ++told; });
        while (told < 100)
            std::this_thread::yield();
    }
    end = true;
}

TEST(task_hook, keeps_the_exceptions_that_ults_handle_apart) {
    execution_stream stream(driven);
    const task_hook hook([](const task_event_info&) {
        try {
            throw std::runtime_error("inside the hook");
        } catch (const std::exception&) {
        }
    });
    int right = 0;
    for (int i = 0; i < 3; ++i) {
        post(stream, [&, i] {
            try {
                throw i;
            } catch (int) {
                this_task::yield();
                try {
                    throw;
                } catch (int mine) {
                    right += mine == i;
                }
            }
        });
    }
    stream.run_ready();
    EXPECT_EQ(right, 3);
}

TEST(task_hook, exceptions_of_its_function_are_ignored) {
    execution_stream stream(driven);
    const task_hook hook([](const task_event_info& what) {
        if (what.what == task_event::running) throw std::runtime_error("no more");
    });
    bool ran = false;
    post(stream, [&] { ran = true; });
    stream.run_ready();
    EXPECT_TRUE(ran);
}

TEST(task_hook, refuses_in_its_function_what_would_hang_there) {
    execution_stream stream(driven);
    ult other = spawn(stream, [] {}, {.name = "other"});
    int refused = 0;
    const auto refuses = [&](auto&& act) {
        try {
            act();
        } catch (const error& why) {
            refused += why.code().code == errc::invalid;
        }
    };
    {
        const task_hook hook([&](const task_event_info& what) {
            if (what.what != task_event::running || what.name != "one") return;
            refuses([] { list_ults(); });
            refuses([&] { other.cancel(); });
            refuses([] { const task_hook another([](const task_event_info&) {}); });
            refuses([] { this_task::exit(); });
            post(stream, [] {}, {.name = "made inside"});
        });
        post(stream, [] {}, {.name = "one"});
        stream.run_ready();
    }
    EXPECT_EQ(refused, 4);
    other.join();
}

TEST(task_hook, has_a_limit_and_needs_a_function) {
    EXPECT_THROW(task_hook{task_hook::function()}, error);
    std::vector<std::unique_ptr<task_hook>> all;
    const auto one_more = [&] {
        all.push_back(std::make_unique<task_hook>([](const task_event_info&) {}));
    };
    for (int i = 0; i < 8; ++i)
        one_more();
    EXPECT_THROW(one_more(), error);
    all.pop_back();
    EXPECT_NO_THROW(one_more());
}

TEST(task_hook, destroyed_in_its_own_function_is_kept_and_logged) {
    execution_stream stream(driven);
    std::unique_ptr<task_hook> hook;
    int calls = 0;
    hook = std::make_unique<task_hook>([&](const task_event_info&) {
        ++calls;
        hook.reset();
    });
    post(stream, [] {});
    stream.run_ready();
    EXPECT_EQ(calls, 1);
}

TEST(task_hook, in_a_fork_child_goes_on_alone) {
    execution_stream stream;
    std::atomic<int> told{0};
    auto hook = std::make_unique<task_hook>([&](const task_event_info&) { ++told; });
    spawn(stream, [] {}).join();
    const pid_t child = ::fork();
    if (child == 0) {
        const int before = told;
        {
            execution_stream own(driven);
            post(own, [] {});
            own.run_ready();
        }
        hook.reset();
        ::_exit(told > before ? 0 : 1);
    }
    int ended = 0;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_EQ(ended, 0);
}

TEST(task_hook, ends_a_child_that_it_forked_on_a_stream_and_that_returns) {
    execution_stream stream;
    const pid_t parent = ::getpid();
    std::atomic<pid_t> child{0};
    const task_hook hook([&](const task_event_info& event) {
        if (event.what == task_event::running && event.name == "forks" && child == 0)
            child = ::fork();
    });
    spawn(stream,
          [&] {
              if (::getpid() != parent) ::_exit(0);  // It has been let through.
          },
          {.name = "forks"})
        .join();
    int ended = 0;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFEXITED(ended));
    EXPECT_EQ(WEXITSTATUS(ended), EXIT_FAILURE);
}

/// A profiler as a user writes one: how long ULTs of a name ran, and how long they were parked.
class profile {
public:
    struct times {
        std::chrono::nanoseconds ran{}, parked{};
        int switches = 0;
    };
    std::map<std::string, times> by_name() {
        const std::lock_guard hold(lock_);
        return total_;
    }

private:
    using clock = std::chrono::steady_clock;
    void tell(const task_event_info& what) {
        if (what.id == nullptr) return;
        const auto now = clock::now();
        const std::lock_guard hold(lock_);
        auto& [state, since] = last_[what.id];
        times& its = total_[std::string(what.name)];
        if (state == task_event::running) its.ran += now - since;
        if (state == task_event::parked) its.parked += now - since;
        if (what.what == task_event::running) ++its.switches;
        state = what.what;
        since = now;
        if (what.what == task_event::ended) last_.erase(what.id);
    }

    std::mutex lock_;
    std::map<const void*, std::pair<task_event, clock::time_point>> last_;
    std::map<std::string, times> total_;
    task_hook hook_{[this](const task_event_info& what) { tell(what); }};
};

TEST(task_hook, builds_a_profile_of_time_run_and_parked_by_name) {
    profile all;
    execution_stream stream;
    {
        ult busy = spawn(stream,
                         [] {
                             // Runs that long however seldom the thread does.
                             for (int i = 0; i < 10; ++i) {
                                 const auto end = std::chrono::steady_clock::now() +
                                                  std::chrono::microseconds(500);
                                 while (std::chrono::steady_clock::now() < end) {
                                 }
                                 this_task::yield();
                             }
                         },
                         {.name = "busy"});
        ult sleepy = spawn(stream, [] { this_task::sleep_for(std::chrono::milliseconds(5)); },
                           {.name = "sleepy"});
    }
    stream.stop();
    const auto seen = all.by_name();
    EXPECT_GE(seen.at("busy").ran + seen.at("sleepy").ran, std::chrono::milliseconds(1));
    EXPECT_GE(seen.at("sleepy").parked, std::chrono::milliseconds(4));
    EXPECT_EQ(seen.at("busy").parked.count(), 0);
    EXPECT_EQ(seen.at("sleepy").switches, 2);
}

}  // namespace
}  // namespace amalgam
