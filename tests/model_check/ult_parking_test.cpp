// tasks: how a ULT parks, and is woken by a permit, a deadline or cancel(). What it leaves on its
// stack is `context`: written before the switch away from it, read after the switch back.
#include <gtest/gtest.h>

#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "model_check/checker/checker.hpp"
#include "model_check/model_stream.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

using detail::ult_core;

struct parked_ult {
    explicit parked_ult(pool& home) {
        core.begin_in(home);
        until.allow_cancel();
    }
    ~parked_ult() { core.leave_home(); }

    ult_core core{ult_core::of_thread{}, "ult"};
    waiter until{core};
    int context = 0;
    int data = 0;  ///< Written by who unparks.
};

/// The first half of a park: as waiter::park_until(), dispatcher::leave_to_park() and, on the stack
/// of the loop, switcher::arrived(). False: the permit is there.
bool leave(model_stream& stream, parked_ult& ult) {
    if (ult.until.state_.load(relaxed) != waiter::empty) return false;
    detail::dispatcher& here = stream.here;
    here.left_until_ = &ult.until;
    ult.core.waiting_on.store(&ult.until, relaxed);
    here.note_left(&ult.core, detail::switcher::fate::parked);
    here.running_.store(nullptr, release);
    ult.context = 1;
    here.settle();
    return true;
}

/// As dispatcher::run_next(), until it may run. Turns in which others would run are left out.
void run_again(model_stream& stream, parked_ult& ult) {
    for (;;) {
        stream.here.running_.store(&ult.core, release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if ((ult.core.requests.load(acquire) & ult_core::held) == 0) return;
        stream.here.running_.store(nullptr, release);
        while ((ult.core.requests.load(acquire) & ult_core::held) != 0)
            yield();
    }
}

/// The second half. True: by a permit.
bool come_back(parked_ult& ult) {
    require(std::exchange(ult.context, 2) == 1, "the stack is not as it was left");
    ult.core.waiting_on.store(nullptr, relaxed);
    return ult.until.state_.exchange(waiter::empty, acquire) == waiter::permit;
}

/// Whole: on a stream that does nothing else but, perhaps, to have the deadline pass.
bool park(model_stream& stream, parked_ult& ult, bool has_deadline = false) {
    if (!leave(stream, ult))
        return ult.until.state_.exchange(waiter::empty, acquire) == waiter::permit;
    if (has_deadline) ult.until.expire();
    require(&stream.next() == &ult.core, "another unit is ready");
    run_again(stream, ult);
    return come_back(ult);
}

model_stream& make_stream(execution& run) {
    auto& stream = run.make<model_stream>();
    run.name(&stream.pool().inbox_, "inbox");
    run.name(&stream.bell.asleep, "asleep");
    run.name(&stream.here.running_, "running");
    run.name(&stream.here.left_, "left");
    return stream;
}

parked_ult& make_ult(execution& run, model_stream& stream, pool& home) {
    auto& ult = run.make<parked_ult>(home);
    run.name(&ult.until.state_, "state");
    run.name(&ult.core.requests, "requests");
    stream.here.running_.store(&ult.core);
    return ult;
}

using fault = std::function<void(execution&, model_stream&, parked_ult&)>;

result of_park(bool has_deadline, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        model_stream& stream = make_stream(run);
        parked_ult& ult = make_ult(run, stream, stream.pool());
        if (weaken) weaken(run, stream, ult);
        run.thread([&stream, &ult, has_deadline] {
            if (!park(stream, ult, has_deadline)) {
                require(has_deadline, "there was no permit");
                require(park(stream, ult), "there was no permit");
            }
            require(ult.data == 1, "an old value");
        });
        run.thread([&ult] {
            ult.data = 1;
            ult.until.unpark();
        });
    });
}

TEST(ult_parking, a_ult_goes_on_after_unpark_and_sees_what_was_written_before) {
    for (const bool has_deadline : {false, true}) {
        const result found = of_park(has_deadline);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

fault weaker_state(std::memory_order order) {
    return [order](execution& run, model_stream&, parked_ult& ult) {
        run.weaken(ult.until.state_, act::change, order);
    };
}

TEST(ult_parking, weaker_orders_are_found) {
    EXPECT_NE(of_park(false, weaker_state(acquire)).failure, "");
    EXPECT_NE(of_park(false, weaker_state(release)).failure, "");
    EXPECT_EQ(
        of_park(false, [](execution& run, model_stream& stream,
                          parked_ult&) { run.weaken(stream.bell.asleep, act::store, release); })
            .failure,
        "all threads wait for ever");
}

/// It leaves one stream, is unparked, and goes on on another, from a pool that both serve.
result of_move(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        model_stream& stream = make_stream(run);
        auto& home = run.make<shared_fifo_pool>();
        run.name(&home.busy_, "lock");
        parked_ult& ult = make_ult(run, stream, home);
        if (weaken) weaken(run, stream, ult);
        run.thread([&stream, &ult, &home] {
            if (leave(stream, ult)) return;
            ult.context = 1;
            home.push(ult.core);
        });
        run.thread([&ult] {
            ult.data = 1;
            ult.until.unpark();
        });
        run.thread([&ult, &home] {
            while (home.pop() == nullptr)
                yield();
            require(come_back(ult) && ult.data == 1, "an old value");
        });
    });
}

TEST(ult_parking, another_stream_finds_the_stack_as_it_was_left) {
    const result found = of_move();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    EXPECT_NE(of_move(weaker_state(acquire)).failure, "");
    EXPECT_NE(of_move(weaker_state(release)).failure, "");
}

/// It is canceled, and perhaps gets a permit afterwards, for which it then parks once more.
result of_cancel(bool has_permit) {
    return explore([=](execution& run) {
        model_stream& stream = make_stream(run);
        parked_ult& ult = make_ult(run, stream, stream.pool());
        run.thread([&stream, &ult, has_permit] {
            if (!park(stream, ult)) {
                require(ult.core.take_cancel(), "it was not canceled");
                if (!has_permit) return;
                require(park(stream, ult), "one cancel ends two waits");
            }
            require(ult.data == 1, "a permit that nobody gave");
        });
        run.thread([&ult, has_permit] {
            detail::cancel_ult(ult.core);
            if (!has_permit) return;
            ult.data = 1;
            ult.until.unpark();
        });
    });
}

TEST(ult_parking, a_cancel_is_not_missed_by_a_ult_that_parks) {
    const result found = of_cancel(false);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(ult_parking, a_cancel_ends_one_wait) {
    const result found = of_cancel(true);
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(ult_parking, a_cancel_without_a_barrier_is_found) {
    const no_barriers none;
    EXPECT_EQ(of_cancel(false).failure, "all threads wait for ever");
}

/// Another thread looks at its stack meanwhile, as list_ults() does. Once it has parked, another
/// ULT leaves the stream, too.
result of_look(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        model_stream& stream = make_stream(run);
        parked_ult& ult = make_ult(run, stream, stream.pool());
        auto& other = run.make<ult_core>(ult_core::of_thread{}, "other");
        if (weaken) weaken(run, stream, ult);
        run.thread([&stream, &ult, &other] {
            leave(stream, ult);
            stream.here.note_left(&other, detail::switcher::fate::resumed);
            stream.here.settle();
            ult.until.unpark();
            require(&stream.next() == &ult.core, "another unit is ready");
            run_again(stream, ult);
            come_back(ult);
        });
        run.thread([&ult] {
            ult_core* const one = &ult.core;
            const detail::ult_registry::hold still({&one, 1});
            if (still.running(*one) == nullptr)
                require(ult.context == 1, "the stack is not as it was left");
        });
    });
}

TEST(ult_parking, a_stack_that_is_held_is_not_in_use) {
    const result found = of_look();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(ult_parking, weaker_orders_of_a_hold_are_found) {
    {
        const no_barriers none;
        EXPECT_NE(of_look().failure, "");
    }
    EXPECT_NE(of_look([](execution& run, model_stream& stream, parked_ult&) {
                  run.weaken(stream.here.left_, act::store, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_look([](execution& run, model_stream& stream, parked_ult&) {
                  run.weaken(stream.here.running_, act::store, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_look([](execution& run, model_stream&, parked_ult& ult) {
                  run.weaken(ult.core.requests, act::load, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_look([](execution& run, model_stream&, parked_ult& ult) {
                  run.weaken(ult.core.requests, act::change, relaxed);
              }).failure,
              "");
}

}  // namespace
}  // namespace amalgam::model
