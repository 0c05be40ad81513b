// tasks: timers that a stream fires, while other threads arm and cancel them; the time that it has
// slept, as others see it.
#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
#include "model_check/stand_ins.hpp"
#include "tasks/dispatch/dispatcher.hpp"
#include "tasks/idle/sleep_times.hpp"
#include "tasks/streams/timer_heap.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

timer::time_point at(int when) {
    return timer::time_point(std::chrono::nanoseconds(when));
}

struct counting_timer final : timer {
    explicit counting_timer(detail::timer_heap& where)
        : timer(
              where, [](timer& self) noexcept { ++static_cast<counting_timer&>(self).fired; },
              nullptr) {}
    int fired = 0;
};

/// Of the stream, what others see. Threads of the program act as another one.
struct a_heap {
    a_heap() {
        heap.of_.store(reinterpret_cast<detail::dispatcher*>(this));
        heap.rings_.store(&bell);
        heap.closed_.store(false);
        detail::dispatcher::set_current(reinterpret_cast<detail::dispatcher*>(&heap));
    }

    model_bell bell;
    detail::timer_heap heap;
};

/// explore(), after which this thread has no stream again. A heap cannot see to that: it is not
/// destroyed where an execution ends halfway.
result explore_heap(const std::function<void(execution&)>& build) {
    const result found = explore(build);
    detail::dispatcher::set_current(nullptr);
    return found;
}

using fault = std::function<void(execution&, detail::timer_heap&)>;

a_heap& make_heap(execution& run, const fault& weaken) {
    auto& made = run.make<a_heap>();
    run.name(&made.heap.firing_, "firing");
    run.name(&made.heap.earliest_, "earliest");
    run.name(&made.heap.lock_, "lock");
    run.name(&made.bell.asleep, "asleep");
    if (weaken) weaken(run, made.heap);
    return made;
}

/// Two are due, while the first is canceled, and then freed.
result of_cancel(const fault& weaken = nullptr) {
    return explore_heap([&](execution& run) {
        a_heap& stream = make_heap(run, weaken);
        auto& first = *run.make<counting_timer*>(new counting_timer(stream.heap));
        auto& second = run.make<counting_timer>(stream.heap);
        detail::timer_heap::arm(first, at(1));
        detail::timer_heap::arm(second, at(2));
        run.thread([&stream] { stream.heap.fire(at(3)); });
        run.thread([&first] {
            const bool was_canceled = detail::timer_heap::cancel(first);
            require(first.fired == (was_canceled ? 0 : 1), "it is fired and canceled, or neither");
            ::operator delete(&first);
        });
    });
}

TEST(timers_model, a_timer_is_fired_or_canceled_and_may_be_freed_then) {
    const result found = of_cancel();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

/// One is armed while the stream goes to sleep.
result of_sleep(const fault& weaken = nullptr) {
    return explore_heap([&](execution& run) {
        a_heap& stream = make_heap(run, weaken);
        auto& one = run.make<counting_timer>(stream.heap);
        run.thread([&stream, &one] {
            // As stream_loop::sleep().
            stream.bell.asleep.store(true, std::memory_order_seq_cst);
            if (stream.heap.earliest() == timer::time_point::max()) stream.bell.wakes.wait();
            stream.bell.asleep.store(false, relaxed);
            require(stream.heap.fire(at(2)) == 1 && one.fired == 1, "it is not fired");
        });
        run.thread([&one] { detail::timer_heap::arm(one, at(1)); });
    });
}

TEST(timers_model, a_stream_does_not_sleep_through_a_timer_that_is_armed) {
    const result found = of_sleep();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(timers_model, weaker_orders_are_found) {
    EXPECT_NE(of_cancel([](execution& run, detail::timer_heap& heap) {
                  run.weaken(heap.firing_, act::load, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_cancel([](execution& run, detail::timer_heap& heap) {
                  run.weaken(heap.firing_, act::store, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_sleep([](execution& run, detail::timer_heap& heap) {
                  run.weaken(heap.earliest_, act::load, acquire);
              }).failure,
              "");
    EXPECT_NE(of_sleep([](execution& run, detail::timer_heap& heap) {
                  run.weaken(heap.earliest_, act::store, release);
              }).failure,
              "");
    EXPECT_EQ(detail::dispatcher::current(), nullptr) << "what runs next has the stream of a model";
}

/// The stream sleeps for an hour, which ends while another thread looks.
result of_sleep_times(
    const std::function<void(execution&, detail::sleep_times&)>& weaken = nullptr) {
    using namespace std::chrono_literals;
    const auto began = std::chrono::steady_clock::now();
    return explore([&](execution& run) {
        auto& times = run.make<detail::sleep_times>();
        times.begin(began);
        run.name(&times.since_, "since");
        run.name(&times.total_, "total");
        if (weaken) weaken(run, times);
        run.thread([&times, began] { times.end(began + 1h); });
        run.thread([&times] {
            const auto total = times.total();
            require(total == 1h || total < 30min, "a sleep is counted twice");
            require(times.total() >= total, "less than before");
        });
    });
}

TEST(sleep_times_model, a_sleep_that_ends_is_counted_once) {
    const result found = of_sleep_times();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(sleep_times_model, weaker_orders_are_found) {
    for (const act what : {act::load, act::store}) {
        EXPECT_NE(of_sleep_times([what](execution& run, detail::sleep_times& times) {
                      run.weaken(times.total_, what, relaxed);
                  }).failure,
                  "");
        EXPECT_NE(of_sleep_times([what](execution& run, detail::sleep_times& times) {
                      run.weaken(times.since_, what, relaxed);
                  }).failure,
                  "");
    }
}

}  // namespace
}  // namespace amalgam::model
