// tasks: how a stream is stopped while it goes to sleep, and who waits for that and then frees it;
// how another thread has its scheduler replaced, while it goes to sleep or is stopped.
#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
#include "model_check/stand_ins.hpp"
#include "tasks/streams/scheduler_stack.hpp"
#include "tasks/streams/stop_state.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

using detail::stop_state;
using stage = stop_state::stage;

/// Of a stream what takes part in its stop.
struct stopped_stream {
    /// As stream::thread_main(): what is still to be done at the limit is left.
    void run() {
        while (!stop.asked())
            sleep();
        is_left = stop.is_late();
        if (is_left) stop.give_up();
        stop.reach(stage::thread_ended);
    }
    /// As stream_loop::sleep().
    void sleep() {
        bell.asleep.store(true, std::memory_order_seq_cst);
        if (!stop.asked_before_sleep()) bell.wakes.wait();
        bell.asleep.store(false, relaxed);
    }
    /// As stream::stop_within() of who is the first.
    void end() {
        stop.limit_to(std::chrono::nanoseconds(0));
        stop.ask();
        bell.ring();
        stop.wait_for(stage::thread_ended);
        require(stop.gave_up() == is_left, "what its thread wrote is not seen");
        stop.reach(stage::stopped);
    }

    stop_state stop;
    model_bell bell;
    bool is_left = false;
};

using stop_fault = std::function<void(execution&, stopped_stream&)>;

/// One stops it, and perhaps another, who waits for that and frees it.
result of_stop(bool is_freed, const stop_fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& stream = *run.make<stopped_stream*>(new stopped_stream);
        run.name(&stream.stop.asked_, "asked");
        run.name(&stream.stop.lock_, "lock");
        run.name(&stream.bell.asleep, "asleep");
        if (weaken) weaken(run, stream);
        run.thread([&stream] { stream.run(); });
        const auto stop = [&stream, is_freed] {
            if (stream.stop.begin()) return stream.end();
            stream.stop.wait_for(stage::stopped);
            if (is_freed) delete &stream;
        };
        run.thread(stop);
        if (is_freed) run.thread(stop);
    });
}

TEST(stop_model, a_stream_does_not_sleep_through_its_stop_and_who_waited_may_free_it) {
    for (const bool is_freed : {false, true}) {
        const result found = of_stop(is_freed);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(stop_model, weaker_orders_are_found) {
    const auto weaker = [](auto member, act what, std::memory_order order) {
        return of_stop(false,
                       [=](execution& run, stopped_stream& stream) {
                           run.weaken(stream.stop.*member, what, order);
                       })
            .failure;
    };
    EXPECT_EQ(weaker(&stop_state::asked_, act::load, acquire), "all threads wait for ever");
    EXPECT_EQ(weaker(&stop_state::asked_, act::store, release), "all threads wait for ever");
    EXPECT_EQ(of_stop(false,
                      [](execution& run, stopped_stream& stream) {
                          run.weaken(stream.bell.asleep, act::store, release);
                      })
                  .failure,
              "all threads wait for ever");
    EXPECT_NE(of_stop(false,
                      [](execution& run, stopped_stream& stream) {
                          run.weaken_at(&stream.stop.lock_, act::change, relaxed);
                      })
                  .failure,
              "");
}

/// Of a stream what takes part in the replacement of its scheduler, too.
struct scheduled_stream {
    scheduled_stream() { schedulers.begin(nullptr); }
    ~scheduled_stream() { schedulers.pools().detach_all(); }

    /// As stream_loop::turn_once(), until the scheduler is another one.
    void run() {
        while (schedulers.type_seen() != typeid(basic_scheduler)) {
            if (schedulers.asked()) {
                schedulers.replace_if_asked(stop.asked());
            } else {
                sleep();
            }
        }
    }
    /// As stream_loop::sleep(), but for `wake_pending`, which would do for the bell as well.
    void sleep() {
        bell.asleep.store(true, std::memory_order_seq_cst);
        if (!schedulers.asked_before_sleep()) bell.wakes.wait();
        bell.asleep.store(false, relaxed);
    }
    /// As stream::stop_now(), of a stream whose thread has nothing to do any more.
    void end() {
        stop.ask();
        schedulers.replace_if_asked(true);
    }
    /// As stream::replace_scheduler(). True: it was refused.
    bool replace() {
        std::vector<pool*> pools{&here.work().own_pool()};
        detail::scheduler_stack::request mine{
            std::make_unique<basic_scheduler>(std::move(pools)), {}, nullptr};
        schedulers.ask(mine);
        if (stop.asked_before_sleep()) {
            schedulers.replace_if_asked(true);
        } else {
            bell.ring();
        }
        mine.who.park();
        return mine.refused != nullptr;
    }

    const std::string name = "of the program";
    model_bell bell;
    stop_state stop;
    detail::dispatcher here{reinterpret_cast<detail::stream&>(*this), false};
    detail::scheduler_stack schedulers{here, bell, name, true};
};

using replace_fault = std::function<void(execution&, scheduled_stream&)>;

/// Another thread replaces the scheduler, while the stream goes to sleep, or stops.
result of_replace(bool is_stopped, const replace_fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& stream = run.make<scheduled_stream>();
        run.name(&stream.schedulers.asked_, "asked for another");
        run.name(&stream.stop.asked_, "asked to stop");
        run.name(&stream.bell.asleep, "asleep");
        if (weaken) weaken(run, stream);
        run.thread([&stream, is_stopped] { is_stopped ? stream.end() : stream.run(); });
        run.thread([&stream, is_stopped] {
            require(stream.replace() == is_stopped, "it is refused, or replaced after the stop");
        });
    });
}

TEST(scheduler_stack_model, who_asks_for_another_scheduler_is_answered_though_the_stream_stops) {
    for (const bool is_stopped : {false, true}) {
        const result found = of_replace(is_stopped);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(scheduler_stack_model, weaker_orders_are_found) {
    const auto weaker = [](bool is_stopped, act what, std::memory_order order) {
        return of_replace(is_stopped,
                          [=](execution& run, scheduled_stream& stream) {
                              run.weaken(stream.schedulers.asked_, what, order);
                          })
            .failure;
    };
    EXPECT_EQ(weaker(false, act::load, acquire), "all threads wait for ever");
    EXPECT_EQ(weaker(false, act::change, std::memory_order_acq_rel), "all threads wait for ever");
    for (const auto order : {acquire, release})
        EXPECT_NE(weaker(true, act::change, order), "");
}

}  // namespace
}  // namespace amalgam::model
