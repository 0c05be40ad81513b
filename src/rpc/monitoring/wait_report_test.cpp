#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/wait_report.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "rpc/engine/untyped_calls_testing.hpp"
#include "rpc/limits.hpp"
#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

/// A server whose handler "hang" waits until it is released, and a client that may ask it.
struct hanging_pair : loop_pair {
    hanging_pair() {
        server.define("hang", [this] { ends.wait(); });
        offer_metrics(server);
    }
    /// Starts what will hang, and lets all go as far as it goes.
    template <typename Work>
    future<void> hang(Work work) {
        future<void> done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_FALSE(done.ready());
        return done;
    }
    wait_report of_client() {
        return in_client([this] { return read_waits(client); });
    }
    wait_report of_server() {
        return in_client([this] { return read_waits(client, there()); });
    }
    void release() {
        ends.set();
        net.run_until_idle();
    }

    event ends;
};

const waiting_unit* unit_of(const wait_report& in, std::uint64_t id) {
    for (const waiting_unit& each : in.units)
        if (id != 0 && each.id == id) return &each;
    return nullptr;
}

TEST(wait_report, tells_who_waits_for_a_call_and_which_handler_of_the_peer_runs_it) {
    hanging_pair two;
    auto done = two.hang([&] { two.client.procedure<void()>("hang").on(two.there())(); });
    const wait_report called = two.of_client(), served = two.of_server();

    ASSERT_EQ(called.calls.size(), 1u);
    const open_call& call = called.calls[0];
    EXPECT_EQ(call.procedure, "hang");
    EXPECT_EQ(call.peer, two.server.address());
    EXPECT_EQ(call.answer, peer_answer::told);
    EXPECT_FALSE(call.unsent);
    const waiting_unit* const caller = unit_of(called, call.unit);
    ASSERT_NE(caller, nullptr);
    EXPECT_EQ(caller->waits_for, "rpc reply");
    EXPECT_EQ(caller->call, call.id);
    EXPECT_EQ(caller->state, ult_state::parked);
    EXPECT_TRUE(called.handlers.empty());

    ASSERT_EQ(served.handlers.size(), 1u);
    const open_handler& handler = served.handlers[0];
    EXPECT_EQ(handler.procedure, "hang");
    EXPECT_EQ(handler.id, call.handler);
    EXPECT_EQ(served.engine, call.engine);
    EXPECT_NE(served.engine, called.engine);
    const waiting_unit* const serves = unit_of(served, handler.unit);
    ASSERT_NE(serves, nullptr);
    EXPECT_EQ(serves->waits_for, "event");
    EXPECT_EQ(serves->call, 0u);
    EXPECT_TRUE(served.calls.empty());
    two.release();
    done.get();
    EXPECT_TRUE(two.of_client().calls.empty());
    EXPECT_TRUE(two.of_server().handlers.empty());
}

TEST(wait_report, tells_who_waits_for_a_future_and_that_nobody_does) {
    hanging_pair two;
    const auto hang = two.client.procedure<void()>("hang").on(two.there());
    std::optional<future<void>> left = hang.start();
    auto done = two.hang([&] { hang.start().get(); });
    const wait_report told = two.of_client();
    ASSERT_EQ(told.calls.size(), 2u);
    EXPECT_EQ(told.calls[0].unit, 0u);
    const waiting_unit* const waits = unit_of(told, told.calls[1].unit);
    ASSERT_NE(waits, nullptr);
    EXPECT_EQ(waits->waits_for, "future");
    EXPECT_EQ(waits->call, told.calls[1].id);
    EXPECT_NE(told.calls[0].handler, told.calls[1].handler);
    two.release();
    done.get();
    left->get();
}

// Its classes have no type that could be asked for.
TEST(wait_report, is_told_of_calls_of_a_program_without_rtti) {
    hanging_pair two;
    two.server.define("hang for a number", [&two] {
        two.ends.wait();
        return untyped_result{7};
    });
    auto later = start_untyped(two.client, two.there(), "hang for a number");
    auto done = two.hang([&] { call_untyped(two.client, two.there(), "hang for a number"); });
    const wait_report told = two.of_client();
    ASSERT_EQ(told.calls.size(), 2u);
    EXPECT_EQ(told.calls[0].procedure, "hang for a number");
    EXPECT_EQ(told.calls[0].unit, 0u);
    two.release();
    done.get();
    EXPECT_EQ(later.get().value, 7);
}

TEST(wait_report, tells_the_ult_that_holds_a_mutex_which_a_handler_waits_for) {
    hanging_pair two;
    mutex accounts;
    two.client.define("confirm", [&] { const std::lock_guard hold(accounts); });
    offer_metrics(two.client);
    two.server.define("transfer", [&] {
        two.server.procedure<void()>("confirm").on(call_context::current().from())();
    });
    auto done = two.hang([&] {
        const std::lock_guard hold(accounts);
        (void)two.client.procedure<void()>("transfer").on(two.there()).try_call();
    });
    const wait_report called = two.of_client(), served = two.of_server();
    ASSERT_EQ(called.handlers.size(), 1u);
    const waiting_unit* const confirms = unit_of(called, called.handlers[0].unit);
    ASSERT_NE(confirms, nullptr);
    EXPECT_EQ(confirms->waits_for, "mutex");
    ASSERT_EQ(called.calls.size(), 1u);
    EXPECT_EQ(confirms->unit, called.calls[0].unit);
    EXPECT_NE(unit_of(called, confirms->unit), nullptr);
    ASSERT_EQ(served.calls.size(), 1u);  // Back, to an engine that it knows by the connection.
    EXPECT_EQ(served.calls[0].engine, called.engine);
    EXPECT_EQ(served.calls[0].handler, called.handlers[0].id);
    ASSERT_EQ(served.handlers.size(), 1u);
    EXPECT_EQ(unit_of(served, served.handlers[0].unit)->call, served.calls[0].id);
    two.net.kill("server");  // Which ends it.
    two.net.run_until_idle();
    done.get();
}

TEST(wait_report, says_that_a_peer_refuses_is_silent_or_never_got_the_call) {
    loop_pair two;
    event ends;
    two.server.define("hang", [&] { ends.wait(); });
    auto done = two.client.spawn([&] { two.client.procedure<void()>("hang").on(two.there())(); });
    two.net.run_until_idle();
    const auto answer = [&] {
        const wait_report told = two.in_client([&] { return read_waits(two.client); });
        EXPECT_EQ(told.calls.size(), 1u);
        return told.calls.at(0).answer;
    };
    EXPECT_EQ(answer(), peer_answer::refused);
    EXPECT_THROW(two.in_client([&] { return read_waits(two.client, two.there()); }), error);
    offer_metrics(two.server, allow_list{.groups = {"operators"}});
    EXPECT_EQ(answer(), peer_answer::told);  // Of its own calls; of the others not.
    EXPECT_THROW(two.in_client([&] { return read_waits(two.client, two.there()); }), error);
    two.net.delay(std::chrono::hours(1));
    EXPECT_EQ(answer(), peer_answer::silent);
    two.net.delay(std::chrono::nanoseconds(0));
    ends.set();
    two.net.run_until_idle();
    done.get();
}

TEST(wait_report, of_an_answer_that_is_to_come_from_a_responder_no_ult_runs) {
    hanging_pair two;
    std::optional<responder<int>> later;
    two.server.define("later", [&](responder<int> to) { later.emplace(std::move(to)); });
    auto done = two.hang([&] { two.client.procedure<int()>("later").on(two.there())(); });
    const wait_report served = two.of_server();
    ASSERT_EQ(served.handlers.size(), 1u);
    EXPECT_EQ(served.handlers[0].unit, 0u);
    EXPECT_EQ(two.of_client().calls.at(0).handler, served.handlers[0].id);
    (*later)(7);
    two.net.run_until_idle();
    done.get();
}

TEST(wait_report, is_bounded_and_says_what_is_left_out) {
    hanging_pair two;
    constexpr std::size_t more = 40;
    const auto hang = two.client.procedure<void()>("hang").on(two.there());
    std::vector<future<void>> all;
    for (std::size_t i = 0; i < detail::limits::max_open_calls_told + more; ++i)
        all.push_back(hang.start());
    two.net.run_until_idle();
    for (const wait_report& each : {two.of_client(), two.of_server()}) {
        EXPECT_EQ(each.calls.size() + each.handlers.size(), detail::limits::max_open_calls_told);
        EXPECT_EQ(each.left_out, more);
    }
    two.release();
    for (auto& each : all)
        each.get();
}

}  // namespace
}  // namespace amalgam
