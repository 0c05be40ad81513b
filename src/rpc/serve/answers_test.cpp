#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/wait_any.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

// How calls are answered and end, on the deterministic network.

namespace amalgam {
namespace {

using namespace std::chrono_literals;

// ---- providers

TEST(provider, the_same_procedure_is_served_under_several_ids) {
    loop_pair two;
    pool& main = two.server.stream().main_pool();
    for (const std::uint16_t id : {std::uint16_t{0}, std::uint16_t{2}, std::uint16_t{65535}}) {
        two.server.define("who",
                          [id] {
                              EXPECT_EQ(call_context::current().provider(), id);
                              EXPECT_EQ(call_context::current().port(), 0u);
                              return static_cast<int>(id);
                          },
                          {.in = &main, .provider = id});
    }
    two.in_client([&] {
        auto who = two.client.procedure<int()>("who");
        EXPECT_EQ(who.on(two.there())(), 0);
        EXPECT_EQ(who.on(two.there(), 2)(), 2);
        EXPECT_EQ(who.on(two.there(), 65535)(), 65535);
        const error unknown = error_of([&] { who.on(two.there(), 3)(); });
        EXPECT_EQ(unknown.code(), errc::not_found);
        EXPECT_NE(std::string(unknown.what()).find("these do: 0, 2, 65535"), std::string::npos)
            << unknown.what();
        EXPECT_EQ(who.on(two.there(), 2)(), 2);
    });
    EXPECT_TRUE(two.server.undefine("who", 2));
    EXPECT_FALSE(two.server.undefine("who", 2));
    two.in_client([&] {
        auto who = two.client.procedure<int()>("who");
        EXPECT_EQ(error_of([&] { who.on(two.there(), 2)(); }).code(), errc::not_found);
        EXPECT_EQ(who.on(two.there())(), 0);
    });
}

TEST(provider, one_name_has_one_signature) {
    loop_pair two;
    two.server.define("f", [](int) {});
    EXPECT_EQ(error_of([&] { two.server.define("f", [](int) {}); }).code(), errc::invalid);
    const error other = error_of([&] { two.server.define("f", [](float) {}, {.provider = 1}); });
    EXPECT_EQ(other.code(), errc::invalid);
    EXPECT_STREQ(other.what(),
                 "\"f\" is void(i32) at provider 0, so it cannot be void(f32) at provider 1: "
                 "rename one of them");
}

TEST(provider, a_handler_knows_the_port_that_a_call_came_by) {
    loop_network net;
    std::vector<std::unique_ptr<port>> ports;
    ports.push_back(net.port("first"));
    ports.push_back(net.port("second"));
    engine server{std::move(ports)};
    engine client{net.port("client")};
    server.define("which", [] { return static_cast<int>(call_context::current().port()); });
    auto done = client.spawn([&] {
        auto which = client.procedure<int()>("which");
        EXPECT_EQ(which.on(server.addresses().at(0))(), 0);
        EXPECT_EQ(which.on(server.addresses().at(1))(), 1);
    });
    net.run_until_idle();
    done.get();
    auto own = server.spawn([&] {
        auto which = server.procedure<int()>("which");
        EXPECT_EQ(which.on(server.address())(), static_cast<int>(peer::self_port));
    });
    net.run_until_idle();
    own.get();
}

// ---- several calls at once

TEST(wait_any_of_calls, returns_the_first_answer_and_leaves_the_others_to_come) {
    loop_pair two;
    two.server.define("wait", [](int ms) {
        this_task::sleep_for(std::chrono::milliseconds(ms));
        return ms;
    });
    two.server.define("text", [](int ms) {
        this_task::sleep_for(std::chrono::milliseconds(ms));
        return std::to_string(ms);
    });
    const peer there = two.there();
    two.in_client([&] {
        future<int> slow = two.client.procedure<int(int)>("wait").on(there).start(300);
        future<std::string> fast =
            two.client.procedure<std::string(int)>("text").on(there).start(5);
        const any_future both[] = {slow, fast};
        EXPECT_FALSE(wait_any_for(both, 1ms));
        EXPECT_EQ(wait_any(slow, fast), 1u);
        EXPECT_EQ(fast.get(), "5");
        EXPECT_FALSE(test_any(slow));
        std::vector<future<int>> many;
        for (int i = 0; i < 20; ++i)
            many.push_back(two.client.procedure<int(int)>("wait").on(there).start(100 - i));
        EXPECT_EQ(wait_any(any_futures(many)), 19u);
        wait_all(any_futures(many));
        EXPECT_EQ(many[7].get(), 93);
        EXPECT_FALSE(slow.ready());
        wait_all(slow);
        EXPECT_EQ(slow.get(), 300);
    });
}

// ---- callbacks

TEST(call_then, tells_a_function_once_how_it_ended) {
    loop_pair two;
    two.server.define("half", [](int n) {
        if (n % 2 != 0) throw std::runtime_error("odd");
        return n / 2;
    });
    auto half = two.client.procedure<int(int)>("half").on(two.there());
    std::vector<std::string> told;
    const auto tell = [&](result<int> how) {
        told.push_back(how ? std::to_string(*how) : std::string(name(how.code().code)));
    };
    half.call_then(tell, 8);
    half.call_then(tell, 7);
    two.client.procedure<int(int)>("none").on(two.there()).call_then(tell, 1);
    EXPECT_TRUE(told.empty());
    two.net.run_until_idle();
    EXPECT_EQ(told, (std::vector<std::string>{"not_found", "4", "handler_failed"}));
    half.within(1ms).call_then(tell, 2);
    two.net.cut("server");
    two.net.run_until_idle();
    EXPECT_EQ(told.back(), "timed_out");
    two.client.stop();
    half.call_then(tell, 2);
    EXPECT_EQ(told.back(), "closed");
    EXPECT_EQ(told.size(), 5u);
}

// ---- early and late answers

TEST(responder, answers_before_the_handler_goes_on) {
    loop_pair two;
    std::vector<std::string> order;
    two.server.define("store", [&](responder<std::size_t> answer, std::string text) {
        EXPECT_EQ(answer.call().procedure(), "store");
        answer(text.size());
        this_task::sleep_for(1s);
        order.push_back("stored");
    });
    two.in_client([&] {
        auto store = two.client.procedure<std::size_t(std::string)>("store");
        EXPECT_EQ(store.on(two.there())("four"), 4u);
        order.push_back("answered");
    });
    EXPECT_EQ(order, (std::vector<std::string>{"answered", "stored"}));
}

TEST(responder, answers_after_the_handler_has_returned) {
    loop_pair two;
    std::vector<responder<std::string>> waiting;
    two.server.define("wait",
                      [&](responder<std::string> answer) { waiting.push_back(std::move(answer)); });
    two.server.define("open", [&](std::string what) {
        for (auto& each : waiting)
            each(what);
        waiting.clear();
    });
    auto wait = two.client.procedure<std::string()>("wait").on(two.there());
    future<std::string> one = wait.start(), other = wait.start();
    two.net.run_until_idle();
    EXPECT_FALSE(one.ready());
    two.in_client([&] {
        two.client.procedure<void(std::string)>("open").on(two.there())(std::string(200'000, 'o'));
    });
    EXPECT_EQ(one.get(), std::string(200'000, 'o'));
    EXPECT_EQ(other.get().size(), 200'000u);
}

TEST(responder, let_go_or_thrown_past_it_fails_the_call_once) {
    loop_pair two;
    two.server.define("forget", [](responder<int>) {});
    two.server.define("throw", [](responder<int>) { throw std::runtime_error("no disk"); });
    two.server.define("fail", [](responder<void> answer) {
        answer.fail("not today");
        EXPECT_EQ(error_of([&] { answer(); }).code(), errc::invalid);
    });
    two.server.define("shout", [](responder<int> answer) {
        answer(1);
        throw std::runtime_error("nobody hears this");
    });
    two.in_client([&] {
        const auto why = [&](const char* name) {
            const result<int> how = two.client.procedure<int()>(name).on(two.there()).try_call();
            EXPECT_EQ(how.code(), errc::handler_failed);
            return how.sentence();
        };
        EXPECT_NE(why("forget").find("destroyed its responder"), std::string::npos);
        EXPECT_NE(why("throw").find("no disk"), std::string::npos);
        auto fail = two.client.procedure<void()>("fail").on(two.there());
        EXPECT_NE(fail.try_call().sentence().find("not today"), std::string::npos);
        EXPECT_EQ(two.client.procedure<int()>("shout").on(two.there())(), 1);
    });
}

TEST(responder, learns_of_a_cancel_and_answers_to_nobody) {
    loop_pair two;
    std::optional<responder<int>> held;
    two.server.define("hold", [&](responder<int> answer) { held.emplace(std::move(answer)); });
    auto hold = two.client.procedure<int()>("hold").on(two.there());
    future<int> call = hold.start();
    two.net.run_until_idle();
    EXPECT_FALSE(held->call().canceled());
    call.cancel();
    two.net.run_until_idle();
    EXPECT_EQ(call.wait().code, errc::canceled);
    EXPECT_TRUE(held->call().canceled());
    (*held)(1);
    two.net.run_until_idle();
    held.reset();
    EXPECT_EQ(counters_of(two.client)["rpc.late_replies"], 0u);
    EXPECT_EQ(two.server.core().server().running(), 0u);
}

TEST(responder, a_cancel_ends_what_its_handler_waits_for_while_that_runs) {
    loop_pair two;
    errc waited = errc::ok;
    bool went_on = false;
    std::vector<responder<int>> kept;
    two.server.define("waits", [&](responder<int> answer) {
        waited = error_of([] { this_task::sleep_for(1h); }).code().code;
        went_on = answer.call().canceled();
    });
    two.server.define("returns", [&](responder<int> answer) { kept.push_back(std::move(answer)); });
    for (const char* each : {"waits", "returns"}) {
        future<int> call = two.client.procedure<int()>(each).on(two.there()).start();
        two.net.run_for(1ms);
        call.cancel();
        two.net.run_for(1ms);
        EXPECT_EQ(call.wait(), errc::canceled);
    }
    EXPECT_EQ(waited, errc::canceled);
    EXPECT_TRUE(went_on);
    ASSERT_EQ(kept.size(), 1u);
    EXPECT_TRUE(kept.front().call().canceled());
    kept.front()(1);
    two.net.run_until_idle();
    EXPECT_EQ(two.server.core().server().running(), 0u);
}

TEST(responder, outlives_its_engine) {
    std::optional<responder<int>> held;
    {
        loop_pair two;
        two.server.define("hold", [&](responder<int> answer) { held.emplace(std::move(answer)); });
        future<int> call = two.client.procedure<int()>("hold").on(two.there()).start();
        two.net.run_until_idle();
    }
    (*held)(5);
    held.reset();
}

TEST(responder, of_a_handler_that_never_begins_leaves_nothing) {
    loop_pair two;
    int begun = 0;
    two.server.define("late", [&](responder<int> answer, int n) {
        ++begun;
        answer(n);
    });
    two.in_client([&] {
        auto late = two.client.procedure<int(int)>("late").on(two.there());
        EXPECT_EQ(late(1), 1);
        future<int> canceled = late.start(2);
        canceled.cancel();
        EXPECT_EQ(error_of([&] { canceled.get(); }).code(), errc::canceled);
    });
    // AddressSanitizer would detect leftovers in the server.
    two.net.run_until_idle();
    EXPECT_EQ(begun, 1);
}

TEST(responder, of_a_one_way_call_answers_to_nobody) {
    loop_pair two;
    int ran = 0;
    two.server.define("note", [&](responder<int> answer, int n) {
        EXPECT_TRUE(answer.call().one_way());
        answer(n);
        ran += n;
    });
    two.in_client([&] { two.client.procedure<int(int)>("note").on(two.there()).post(3); });
    EXPECT_EQ(ran, 3);
}

// ---- cancel

TEST(cancel, ends_a_call_that_the_handler_waits_for) {
    loop_network net;
    engine front{net.port("front")}, back{net.port("back")}, client{net.port("client")};
    errc seen = errc::ok;
    bool back_canceled = false;
    back.define("slow", [&] {
        EXPECT_EQ(error_of([] { this_task::sleep_for(1h); }).code(), errc::canceled);
        back_canceled = call_context::current().canceled();
    });
    front.define("ask", [&] {
        seen = error_of([&] { front.procedure<void()>("slow").on(back.address())(); }).code().code;
    });
    future<void> call = client.procedure<void()>("ask").on(front.address()).start();
    net.run_for(10ms);
    call.cancel();
    net.run_until_idle();
    EXPECT_EQ(call.wait().code, errc::canceled);
    EXPECT_EQ(seen, errc::canceled);
    EXPECT_TRUE(back_canceled);
    EXPECT_EQ(net.open_operations(), 0u);
}

TEST(cancel, before_the_handler_begins_keeps_it_from_running) {
    loop_pair two;
    event go;
    int ran = 0;
    two.server.define("block", [&] { go.wait(); });
    two.server.define("count", [&] { ++ran; });
    two.in_client([&] {
        future<void> call = two.client.procedure<void()>("count").on(two.there()).start();
        call.cancel();
    });
    EXPECT_EQ(ran, 0);
}

TEST(cancel, a_deadline_that_passed_ends_what_the_handler_waits_for) {
    loop_pair two;
    bool ended = false;
    two.server.define("slow", [&] {
        EXPECT_EQ(error_of([] { this_task::sleep_for(1h); }).code(), errc::canceled);
        ended = true;
    });
    auto slow = two.client.procedure<void()>("slow").on(two.there()).within(5ms);
    EXPECT_EQ(two.in_client([&] { return slow.try_call().code().code; }), errc::timed_out);
    EXPECT_TRUE(ended);
    EXPECT_EQ(two.server.core().server().running(), 0u);
}

// ---- retries

TEST(retry, only_what_is_declared_idempotent) {
    loop_pair two;
    auto sum = two.client.procedure<int(int)>("sum").on(two.there());
    EXPECT_EQ(error_of([&] { sum.retrying(3); }).code(), errc::invalid);
}

TEST(retry, an_overloaded_call_is_made_again_after_a_pause) {
    loop_network net;
    engine server{net.port("server"), {.max_running = 1}};
    engine client{net.port("client")};
    server.define("slow", [] { this_task::sleep_for(25ms); });
    auto slow = client.procedure<void()>("slow", {.idempotent = true}).on(server.address());
    future<void> first = slow.start();
    net.run_for(1ms);
    EXPECT_EQ(counters_of(client)["rpc.retried"], 0u);
    future<void> second = slow.retrying(5, 10ms).start();
    future<void> third = slow.retrying(2, 10ms).start();
    future<void> timed = slow.retrying(100, 10ms).within(8ms).start();
    net.run_until_idle();
    EXPECT_TRUE(first.wait().ok());
    EXPECT_TRUE(second.wait().ok());
    EXPECT_EQ(third.wait().code, errc::overloaded);
    EXPECT_EQ(timed.wait().code, errc::overloaded);
    EXPECT_GE(counters_of(client)["rpc.retried"], 2u);
}

TEST(retry, a_peer_that_is_back_is_looked_up_again) {
    loop_network net;
    engine client{net.port("client")};
    std::optional<engine> server;
    server.emplace(net.port("server"));
    const std::string address = server->address();
    server->define("id", [] { return 1; });
    auto id = client.procedure<int()>("id", {.idempotent = true}).on(address).retrying(10, 20ms);
    auto one = id.start();
    net.run_until_idle();
    EXPECT_EQ(one.get(), 1);
    net.kill("server");
    server.reset();
    auto two = id.start();
    net.run_for(50ms);
    server.emplace(net.port("server"));
    server->define("id", [] { return 2; });
    net.run_until_idle();
    EXPECT_EQ(two.get(), 2);
}

TEST(retry, a_peer_that_stays_away_is_lost_once_however_often_it_is_looked_up) {
    loop_network net;
    engine client{net.port("client")};
    std::optional<engine> server;
    server.emplace(net.port("server"));
    server->define("id", [] { return 1; });
    int lost = 0;
    const auto watch = client.on_peer_lost([&](const peer&, status) { ++lost; });
    auto id =
        client.procedure<int()>("id", {.idempotent = true}).on(server->address()).retrying(4, 20ms);
    auto one = id.start();
    net.run_until_idle();
    EXPECT_EQ(one.get(), 1);
    auto two = id.start();
    net.kill("server");
    server.reset();
    net.run_until_idle();
    EXPECT_FALSE(two.wait().ok());
    EXPECT_EQ(counters_of(client)["rpc.retried"], 3u);
    EXPECT_EQ(lost, 1);
}

TEST(retry, a_pausing_call_can_be_canceled_and_ends_with_its_engine) {
    loop_network net;
    engine server{net.port("server"), {.max_running = 0}};
    engine client{net.port("client")};
    server.define("f", [] {});
    auto f = client.procedure<void()>("f", {.idempotent = true}).on(server.address());
    future<void> one = f.retrying(9, 1h).start(), two = f.retrying(9, 1h).start();
    net.run_for(1s);
    one.cancel();
    net.run_for(1ms);
    EXPECT_EQ(one.wait().code, errc::canceled);
    EXPECT_FALSE(two.ready());
    client.stop();
    EXPECT_EQ(two.wait().code, errc::closed);
}

// ---- urgent

TEST(retry, a_call_that_has_paused_is_counted_as_one_until_its_end) {
    loop_network net;
    engine client{net.port("client")};
    auto f = client.procedure<void()>("f", {.idempotent = true}).on("loop://nobody");
    future<void> first = f.retrying(3, 10ms).start(), second = f.retrying(3, 1h).start();
    net.run_for(5ms);
    EXPECT_EQ(client.core().caller().pending(), 2u);
    net.run_for(1s);
    EXPECT_FALSE(first.wait().ok());
    EXPECT_EQ(client.core().caller().pending(), 1u);
    second.cancel();
    EXPECT_EQ(second.wait(), errc::canceled);
    EXPECT_EQ(client.core().caller().pending(), 0u);
    EXPECT_EQ(counters_of(client)["rpc.retried"], 2u);
}

TEST(urgent, goes_before_others_and_is_served_when_they_are_refused) {
    loop_network net;
    engine server{net.port("server"), {.max_running = 2}};
    engine client{net.port("client")};
    server.define("slow", [] { this_task::sleep_for(10ms); });
    server.define("health", [] { return true; });
    auto done = client.spawn([&] {
        auto slow = client.procedure<void()>("slow").on(server.address());
        auto health = client.procedure<bool()>("health").on(server.address());
        future<void> one = slow.start(), two = slow.start();
        this_task::sleep_for(1ms);
        EXPECT_EQ(health.try_call().code(), errc::overloaded);
        EXPECT_TRUE(health.urgent()());
    });
    net.run_until_idle();
    done.get();
}

engine_options handlers_in(pool_kind kind) {
    engine_options how;
    how.streams = {{.pools = {"p"}}};
    how.pools = {{.name = "p", .kind = kind}};
    how.handlers = "p";
    return how;
}

TEST(urgent, starts_before_handlers_that_are_ready_in_every_kind_of_pool) {
    std::vector<engine_options> all{{}};
    for (const pool_kind kind : {pool_kind::fifo, pool_kind::shared_fifo, pool_kind::lifo,
                                 pool_kind::priority, pool_kind::work_stealing})
        all.push_back(handlers_in(kind));
    for (std::size_t i = 0; i < all.size(); ++i) {
        loop_network net;
        engine server{net.port("server"), all[i]};
        engine client{net.port("client")};
        std::vector<int> order;
        server.define("note", [&](int n) { order.push_back(n); });
        auto note = client.procedure<void(int)>("note").on(server.address());
        auto done = client.spawn([&] {
            for (int n = 0; n < 20; ++n)
                note.post(n);
            note.urgent().post(100);
            note.urgent().post(101);
        });
        net.run_until_idle();
        done.get();
        ASSERT_EQ(order.size(), 22u) << i;
        EXPECT_EQ(order[0], 100) << i;
        EXPECT_EQ(order[1], 101) << i;
    }
}

}  // namespace
}  // namespace amalgam
