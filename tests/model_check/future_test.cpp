// tasks: futures. A plain thread or a coroutine waits, and another thread completes. Those of rpc
// (future_call, future_transfer) are the same, with memory of their own.
#include <gtest/gtest.h>

#include <amalgam/tasks/detail/future_state.hpp>

#include "model_check/checker/checker.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

using state = detail::future_state<int>;
using fault = std::function<void(execution&, state&)>;

/// A promise and a future: two references.
state& make_state(execution& run, const fault& weaken) {
    auto& made = *run.make<state*>(new state);
    made.add_reference();
    run.name(&made.next_, "next");
    run.name(&made.references_, "references");
    if (weaken) weaken(run, made);
    return made;
}

/// One waits, perhaps until a deadline at first, and takes the value. The last one frees the state.
result of_future(bool has_deadline, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        state& shared = make_state(run, weaken);
        run.thread([&shared, has_deadline] {
            if (!has_deadline || !shared.wait_until(state::time_point(std::chrono::nanoseconds(1))))
                shared.wait();
            require(shared.take() == 7, "another value");
            shared.drop_reference();
        });
        run.thread([&shared] {
            shared.set(7);
            shared.drop_reference();
        });
    });
}

TEST(future_model, a_value_is_taken_once_and_its_memory_freed_once) {
    for (const bool has_deadline : {false, true}) {
        const result found = of_future(has_deadline);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
}

TEST(future_model, weaker_orders_are_found) {
    EXPECT_NE(of_future(false,
                        [](execution& run, state& of) { run.weaken(of.next_, act::load, relaxed); })
                  .failure,
              "");
    for (const auto order : {acquire, release}) {
        EXPECT_NE(of_future(false, [order](execution& run,
                                           state& of) { run.weaken(of.next_, act::change, order); })
                      .failure,
                  "");
        EXPECT_NE(
            of_future(false, [order](execution& run,
                                     state& of) { run.weaken(of.references_, act::change, order); })
                .failure,
            "");
    }
}

/// A continuation is attached, and perhaps taken back, by who then frees it unless it runs.
result of_continuation(bool takes_back, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        struct then final : detail::continuation {
            then() : continuation{&run_it} {}
            static void run_it(continuation& self) noexcept {
                auto& me = static_cast<then&>(self);
                require(me.prepared == 1, "what was written before attach() is not seen");
                delete &me;
            }
            int prepared = 0;
        };
        state& shared = make_state(run, weaken);
        run.thread([&shared, takes_back] {
            auto* const mine = new then;
            mine->prepared = 1;
            const bool is_attached = shared.attach(*mine);
            if (!is_attached) require(shared.take() == 7, "another value");
            if (!is_attached || (takes_back && shared.detach(*mine))) delete mine;
            shared.drop_reference();
        });
        run.thread([&shared] {
            shared.set(7);
            shared.drop_reference();
        });
    });
}

TEST(future_model, a_continuation_runs_or_is_taken_back) {
    for (const bool takes_back : {false, true}) {
        const result found = of_continuation(takes_back);
        EXPECT_EQ(found.failure, "") << found.trace;
        EXPECT_TRUE(found.complete);
    }
    for (const auto order : {acquire, release}) {
        EXPECT_NE(
            of_continuation(false, [order](execution& run,
                                           state& of) { run.weaken(of.next_, act::change, order); })
                .failure,
            "");
    }
}

}  // namespace
}  // namespace amalgam::model
