// rpc: how a plain thread hands work over to the stream of an engine, while that ends; a call that
// is canceled while its handler begins on another stream.
#include <gtest/gtest.h>

#include "model_check/checker/checker.hpp"
#include "model_check/stand_ins.hpp"
#include "rpc/core/core.hpp"
#include "rpc/serve/invocation.hpp"

namespace amalgam {
namespace {

/// Of the engine of the program.
pool* pool_of_engine = nullptr;

}  // namespace

// In place of the library's, which needs a whole stream.
pool& execution_stream::main_pool() noexcept {
    return *pool_of_engine;
}

namespace model {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

/// Of an engine only what takes part in a hand-over. The rest is zeros.
struct an_engine {
    an_engine() {
        core().streams_.first_ = reinterpret_cast<execution_stream*>(this);
        pool_of_engine = &stream->pool;
    }
    detail::engine_core& core() { return *reinterpret_cast<detail::engine_core*>(memory.data()); }

    std::unique_ptr<served_pool> stream = std::make_unique<served_pool>();
    alignas(detail::engine_core) std::array<std::byte, sizeof(detail::engine_core)> memory{};
};

using fault = std::function<void(execution&, an_engine&)>;

an_engine& make_engine(execution& run, const fault& weaken) {
    auto& made = run.make<an_engine>();
    run.name(&made.core().closed_, "closed");
    run.name(&made.core().handing_over_, "handing over");
    run.name(&made.stream->pool.inbox_, "inbox");
    if (weaken) weaken(run, made);
    return made;
}

/// A plain thread has something run on the stream, which ends: before, while it waits, or after.
result of_end(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        an_engine& engine = make_engine(run, weaken);
        run.thread([&engine] {
            int sent = 1;
            const auto work = [&sent] {
                require(sent == 1, "what was written before is not seen");
                sent = 2;
            };
            try {
                engine.core().on_stream(work);
                require(sent == 2, "what was written there is not seen");
            } catch (const error&) {
                require(sent == 1, "it was refused, and ran");
            }
        });
        run.thread([&engine] {
            const auto run_ready = [&engine] {
                while (work_unit* const next = engine.stream->pool.pop())
                    next->run();
            };
            run_ready();
            engine.core().stop_handing_over();
            run_ready();
            engine.stream.reset();
        });
    });
}

TEST(hand_over_model, what_is_handed_over_runs_or_is_refused) {
    const result found = of_end();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(hand_over_model, weaker_orders_are_found) {
    EXPECT_NE(of_end([](execution& run, an_engine& engine) {
                  run.weaken(engine.core().closed_, act::store, release);
              }).failure,
              "");
    EXPECT_NE(of_end([](execution& run, an_engine& engine) {
                  run.weaken(engine.core().closed_, act::load, acquire);
              }).failure,
              "");
    EXPECT_NE(of_end([](execution& run, an_engine& engine) {
                  run.weaken(engine.core().handing_over_, act::load, acquire);
              }).failure,
              "");
    EXPECT_NE(of_end([](execution& run, an_engine& engine) {
                  run.weaken(engine.core().handing_over_, act::change, relaxed);
              }).failure,
              "");
    EXPECT_NE(of_end([](execution& run, an_engine& engine) {
                  run.weaken(engine.stream->pool.inbox_, act::change, relaxed);
              }).failure,
              "");
}

/// The stream sleeps until something is handed over, by one that cannot wait for it.
result of_sleep(const fault& weaken = nullptr) {
    return explore([&](execution& run) {
        struct unit final : work_unit {
            unit() : work_unit(&run_it) {}
            static void run_it(work_unit& self) noexcept {
                require(static_cast<unit&>(self).sent == 1, "what was written before is not seen");
            }
            int sent = 0;
        };
        an_engine& engine = make_engine(run, weaken);
        auto& work = run.make<unit>();
        run.thread([&engine, &work] {
            work.sent = 1;
            require(engine.core().hand_over(work), "it is refused");
        });
        run.thread([&engine] {
            work_unit* next = nullptr;
            while ((next = engine.stream->pool.pop()) == nullptr)
                engine.stream->sleep();
            next->run();
        });
    });
}

TEST(hand_over_model, a_stream_does_not_sleep_through_what_is_handed_over) {
    const result found = of_sleep();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
    EXPECT_EQ(of_sleep([](execution& run, an_engine& engine) {
                  run.weaken(engine.stream->bell.asleep, act::load, acquire);
              }).failure,
              "all threads wait for ever");
}

/// A call is canceled while its handler begins: the handler sees that, or is seen to have begun,
/// and then is told as cancel_ult() does.
result of_cancel(const std::function<void(execution&, detail::invocation&)>& weaken = nullptr) {
    return explore([&](execution& run) {
        struct a_call {
            /// The rest is zeros: it runs in no ULT that could be told.
            detail::invocation& call() {
                return *reinterpret_cast<detail::invocation*>(memory.data());
            }
            alignas(detail::invocation) std::array<std::byte, sizeof(detail::invocation)> memory{};
            bool sees_cancel = false, is_seen = false;
        };
        auto& what = run.make<a_call>();
        run.name(&what.call().canceled_, "canceled");
        run.name(&what.call().begun_, "begun");
        if (weaken) weaken(run, what.call());
        run.thread([&what] { what.sees_cancel = what.call().begin(false); });
        run.thread([&what] {
            what.call().invocation::cancel();
            what.is_seen = what.call().begun_.load(std::memory_order_seq_cst);
        });
        run.afterwards(
            [&what] { require(what.sees_cancel || what.is_seen, "neither sees the other"); });
    });
}

TEST(canceled_call_model, a_cancel_is_not_missed_by_a_handler_that_begins) {
    const result found = of_cancel();
    EXPECT_EQ(found.failure, "") << found.trace;
    EXPECT_TRUE(found.complete);
}

TEST(canceled_call_model, weaker_orders_are_found) {
    EXPECT_NE(of_cancel([](execution& run, detail::invocation& call) {
                  run.weaken(call.canceled_, act::store, release);
              }).failure,
              "");
    EXPECT_NE(of_cancel([](execution& run, detail::invocation& call) {
                  run.weaken(call.canceled_, act::load, acquire);
              }).failure,
              "");
    EXPECT_NE(of_cancel([](execution& run, detail::invocation& call) {
                  run.weaken(call.begun_, act::store, release);
              }).failure,
              "");
}

}  // namespace
}  // namespace model
}  // namespace amalgam
