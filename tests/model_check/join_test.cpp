// tasks: how a unit tells its end to who joins or detaches it. Its stream does so without an
// exchange if it made the unit itself, and the other side checks that with a barrier on all
// threads.
#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
#include "model_check/model_stream.hpp"
#include "tasks/dispatch/join_state.hpp"

namespace amalgam::model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

struct unit : detail::join_state {
    int written = 0;
};

using fault = std::function<void(execution&, model_stream&, unit&)>;

enum class end_of { join, join_until, detach };

/// A unit ends on its stream, and the next one, while a plain thread joins or detaches it. One of
/// them frees it.
result of_end(bool made_at_home, end_of how, const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        auto& stream = run.make<model_stream>();
        auto& ends = *run.make<unit*>(new unit);
        ends.made_at_home = made_at_home;
        auto& frees = run.make<std::atomic<int>>(0);
        unit& next = run.make<unit>();
        next.made_at_home = made_at_home;
        run.name(&ends.joiner, "joiner");
        run.name(&stream.here.ending_, "ending");
        if (weaken) weaken(run, stream, ends);
        const auto free = [&ends, &frees] {
            frees.fetch_add(1, relaxed);
            delete &ends;
        };
        run.thread([&stream, &ends, &next, free] {
            ends.written = 1;
            if (stream.here.end(ends)) free();
            stream.here.end(next);
        });
        run.thread([&ends, how, free] {
            bool ended = true;
            switch (how) {
                case end_of::join_until:
                    if (ends.wait_until(false, waiter::time_point(std::chrono::nanoseconds(1))))
                        break;
                    [[fallthrough]];
                case end_of::join:
                    ends.wait(false);
                    break;
                case end_of::detach:
                    ended = ends.detach(false);
            }
            if (!ended) return;
            require(ends.written == 1, "an old value");
            free();
        });
        run.afterwards([&frees] { require(frees.load() == 1, "it is not freed once"); });
    });
}

TEST(join_model, a_unit_ends_once_for_its_joiner_and_is_freed_once) {
    for (const bool made_at_home : {false, true}) {
        for (const end_of how : {end_of::join, end_of::join_until, end_of::detach}) {
            const result found = of_end(made_at_home, how);
            EXPECT_EQ(found.failure, "") << found.trace;
            EXPECT_TRUE(found.complete) << made_at_home << static_cast<int>(how);
        }
    }
}

/// The first program in which that fault is found.
std::string found_in_any(bool made_at_home, const fault& weaken) {
    for (const end_of how : {end_of::join, end_of::join_until, end_of::detach}) {
        const result found = of_end(made_at_home, how, weaken);
        if (!found.failure.empty()) return found.failure;
    }
    return {};
}

TEST(join_model, weaker_orders_are_found) {
    const auto joiner = [](act what, std::memory_order order) {
        return [=](execution& run, model_stream&, unit& ends) {
            run.weaken(ends.joiner, what, order);
        };
    };
    EXPECT_NE(found_in_any(false, joiner(act::change, acquire)), "");
    EXPECT_NE(found_in_any(false, joiner(act::change, release)), "");
    EXPECT_NE(found_in_any(false, joiner(act::load, relaxed)), "");
    EXPECT_NE(found_in_any(true, joiner(act::store, relaxed)), "");
    EXPECT_NE(found_in_any(true, joiner(act::load, relaxed)), "");
    for (const act what : {act::load, act::store}) {
        EXPECT_NE(
            found_in_any(true, [what](execution& run, model_stream& stream,
                                      unit&) { run.weaken(stream.here.ending_, what, relaxed); }),
            "");
    }
}

TEST(join_model, a_barrier_left_out_is_found) {
    const no_barriers none;
    EXPECT_EQ(of_end(true, end_of::join).failure, "all threads wait for ever");
    EXPECT_NE(of_end(true, end_of::detach).failure, "");
}

}  // namespace
}  // namespace amalgam::model
