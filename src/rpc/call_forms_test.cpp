#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/engine_core.hpp"
#include "rpc/loop_pair.hpp"

// Every way to call and to answer, on the deterministic network.

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
                 "choose another name for one of them");
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
        EXPECT_NE(why("forget").find("let go of it"), std::string::npos);
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
    EXPECT_EQ(two.server.core().serves().running(), 0u);
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

// ---- streams

TEST(streamed, values_come_in_order_to_the_end) {
    loop_pair two;
    two.server.define("count", [](stream_writer<int>& out, int from, int to) {
        for (int i = from; i < to; ++i)
            out(i);
    });
    auto count = two.client.procedure<streamed<int>(int, int)>("count");
    EXPECT_EQ(count.signature(), "stream<i32>(i32,i32)");
    two.in_client([&] {
        for (const int values : {0, 1, 64, 1000}) {
            std::vector<int> got;
            for (int each : count.on(two.there())(3, 3 + values))
                got.push_back(each);
            std::vector<int> expected(static_cast<std::size_t>(values));
            std::iota(expected.begin(), expected.end(), 3);
            EXPECT_EQ(got, expected);
        }
    });
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(streamed, a_reader_that_does_not_read_holds_the_handler_back) {
    loop_pair two;
    int written = 0;
    two.server.define("numbers", [&](stream_writer<std::string>& out) {
        for (; written < 100; ++written)
            out(std::to_string(written));
    });
    auto numbers = two.client.procedure<streamed<std::string>()>("numbers").on(two.there());
    streamed<std::string> some = numbers.window(8)();
    two.net.run_until_idle();
    EXPECT_EQ(written, 8);
    two.in_client([&] {
        for (int i = 0; i < 5; ++i)
            EXPECT_EQ(some.next(), std::to_string(i));
    });
    EXPECT_GT(written, 8);
    EXPECT_LE(written, 5 + 8);
    two.in_client([&] {
        int rest = 0;
        while (some.next())
            ++rest;
        EXPECT_EQ(rest, 95);
    });
}

TEST(streamed, leaving_early_ends_the_handlers_next_write) {
    loop_pair two;
    errc seen = errc::ok;
    two.server.define("for_ever", [&](stream_writer<int>& out) {
        try {
            for (int i = 0;; ++i)
                out(i);
        } catch (const error& why) {
            seen = why.code().code;
            throw;
        }
    });
    two.in_client([&] {
        auto endless = two.client.procedure<streamed<int>()>("for_ever").on(two.there())();
        EXPECT_EQ(endless.next(), 0);
        EXPECT_EQ(endless.next(), 1);
    });
    EXPECT_EQ(seen, errc::canceled);
    EXPECT_EQ(two.server.core().serves().running(), 0u);
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(streamed, a_failure_comes_after_the_values_before_it) {
    loop_pair two;
    two.server.define("three", [](stream_writer<int>& out) {
        for (int i = 0; i < 3; ++i)
            out(i);
        throw std::runtime_error("no more");
    });
    two.in_client([&] {
        auto three = two.client.procedure<streamed<int>()>("three").on(two.there())();
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(three.next(), i);
        const error why = error_of([&] { three.next(); });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("no more"), std::string::npos);
    });
}

TEST(streamed, peer_loss_deadline_and_cancel_end_it_once) {
    for (const char* how : {"kill", "deadline", "cancel"}) {
        loop_pair two;
        two.server.define("slow", [](stream_writer<int>& out) {
            for (int i = 0;; ++i) {
                out(i);
                this_task::sleep_for(10ms);
            }
        });
        auto slow = two.client.procedure<streamed<int>()>("slow").on(two.there());
        if (how == std::string("deadline")) slow = slow.within(25ms);
        auto values = slow();
        two.net.run_for(22ms);
        if (how == std::string("kill")) two.net.kill("server");
        if (how == std::string("cancel")) values.cancel();
        two.net.run_until_idle();
        auto reader = two.client.spawn([&] {
            while (values.next()) {
            }
        });
        two.net.run_until_idle();
        const errc expected = how == std::string("kill")       ? errc::disconnected
                              : how == std::string("deadline") ? errc::timed_out
                                                               : errc::canceled;
        EXPECT_EQ(reader.wait().code, expected) << how;
        EXPECT_EQ(two.server.core().serves().running(), 0u) << how;
    }
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
    EXPECT_EQ(two.server.core().serves().running(), 0u);
}

TEST(streamed, an_inline_handler_cannot) {
    loop_pair two;
    EXPECT_EQ(error_of([&] {
                  two.server.define("s", [](stream_writer<int>&) {}, {.run = handler::inline_});
              }).code(),
              errc::invalid);
}

// ---- any size

TEST(any_size, arguments_and_results_past_the_eager_limit) {
    loop_network net({.max_message_bytes = 300'000});
    engine server{net.port("server")}, client{net.port("client")};
    server.define("echo", [](std::string text) { return text; });
    server.define("echo_inline", [](std::string text) { return text; }, {.run = handler::inline_});
    std::size_t noted = 0;
    server.define("note", [&](std::string text) { noted += text.size(); });
    auto done = client.spawn([&] {
        for (const std::size_t bytes : {65'000u, 66'000u, 299'999u, 1'000'000u, 5'000'000u}) {
            const std::string text(bytes, static_cast<char>('a' + bytes % 26));
            EXPECT_EQ(client.procedure<std::string(std::string)>("echo").on(server.address())(text),
                      text);
            EXPECT_EQ(client.procedure<std::string(std::string)>("echo_inline")
                          .on(server.address())(text),
                      text);
            client.procedure<void(std::string)>("note").on(server.address()).post(text);
        }
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(noted, 65'000u + 66'000u + 299'999u + 1'000'000u + 5'000'000u);
    EXPECT_EQ(client.core().lending().size().value(), 0u);
    EXPECT_EQ(server.core().lending().size().value(), 0u);
    EXPECT_EQ(net.open_operations(), 0u);
}

TEST(any_size, nothing_is_kept_when_an_end_comes_in_between) {
    const std::string large(1'000'000, 'l');
    for (int faults = 0; faults < 40; ++faults) {
        loop_network net;
        engine server{net.port("server")}, client{net.port("client")};
        server.define("echo", [](std::string text) { return text; });
        auto echo = client.procedure<std::string(std::string)>("echo").on(server.address());
        future<std::string> call = echo.start(large);
        client.procedure<std::string(std::string)>("echo").on(server.address()).post(large);
        net.run_for(std::chrono::microseconds(20 * faults));
        switch (faults % 3) {
            case 0:
                net.kill("server");
                break;
            case 1:
                net.kill("client");
                break;
            default:
                call.cancel();
        }
        net.run_until_idle();
        EXPECT_TRUE(call.ready());
        if (faults % 3 != 1) {
            EXPECT_EQ(client.core().lending().size().value(), 0u) << faults;
        }
        if (faults % 3 != 0) {
            EXPECT_EQ(server.core().lending().size().value(), 0u) << faults;
        }
        EXPECT_EQ(server.core().serves().running(), 0u) << faults;
    }
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

// ---- interceptors, metadata, traces

struct watcher : interceptor {
    std::vector<std::string> seen;
    std::string tag;
    bool refuses_outgoing = false;
    bool refuses_incoming = false;

    void calling(outgoing_call& call) override {
        if (refuses_outgoing) throw error(errc::denied, "not from here");
        if (!tag.empty()) call.attach("user", tag);
        seen.push_back("calling " + std::string(call.procedure()));
    }
    void called(std::string_view procedure, const peer&, status how,
                clock::duration took) noexcept override {
        EXPECT_GE(took, clock::duration::zero());
        seen.push_back("called " + std::string(procedure) + " " + std::string(name(how.code)));
    }
    void serving(call_context& call) override {
        if (refuses_incoming) throw error(errc::denied, "you may not");
        seen.push_back("serving " + std::string(call.procedure()) + " for " +
                       std::string(call.metadata("user").value_or("nobody")));
    }
    void served(call_context& call, status how, clock::duration) noexcept override {
        seen.push_back("served " + std::string(call.procedure()) + " " +
                       std::string(name(how.code)));
    }
};

TEST(interceptors, see_every_call_on_both_sides) {
    loop_network net;
    auto there = std::make_shared<watcher>();
    auto here = std::make_shared<watcher>();
    auto outer = std::make_shared<watcher>();
    here->tag = "ann";
    engine server{net.port("server"), {.interceptors = {there}}};
    engine client{net.port("client"), {.interceptors = {outer, here}}};
    server.define("f", [](int n) {
        if (n == 0) throw std::runtime_error("zero");
    });
    auto done = client.spawn([&] {
        auto f = client.procedure<void(int)>("f").on(server.address());
        f(1);
        EXPECT_EQ(f.try_call(0).code(), errc::handler_failed);
        f.post(2);
        this_task::sleep_for(1ms);
        there->refuses_incoming = true;
        const result<void> refused = f.try_call(3);
        EXPECT_EQ(refused.code(), errc::denied);
        EXPECT_NE(refused.sentence().find("you may not"), std::string::npos);
        here->refuses_outgoing = true;
        EXPECT_EQ(f.try_call(4).code(), errc::denied);
        EXPECT_EQ(error_of([&] { f.post(5); }).code(), errc::denied);
    });
    net.run_until_idle();
    done.get();
    EXPECT_EQ(here->seen, (std::vector<std::string>{"calling f", "called f ok", "calling f",
                                                    "called f handler_failed", "calling f",
                                                    "calling f", "called f denied"}));
    EXPECT_EQ(outer->seen.back(), "calling f");
    EXPECT_EQ(outer->seen.at(outer->seen.size() - 2), "called f denied");
    EXPECT_EQ(there->seen, (std::vector<std::string>{"serving f for ann", "served f ok",
                                                     "serving f for ann", "served f handler_failed",
                                                     "serving f for ann", "served f ok"}));
}

TEST(trace, goes_with_a_call_and_those_that_its_handler_makes) {
    loop_network net;
    engine back{net.port("back")}, front{net.port("front")}, client{net.port("client")};
    std::vector<trace_context> seen;
    back.define("deep", [&] {
        ASSERT_NE(call_context::current().trace(), nullptr);
        seen.push_back(*call_context::current().trace());
    });
    front.define("ask", [&] {
        ASSERT_NE(call_context::current().trace(), nullptr);
        seen.push_back(*call_context::current().trace());
        front.procedure<void()>("deep").on(back.address())();
    });
    front.define("plain", [] { EXPECT_EQ(call_context::current().trace(), nullptr); });
    const trace_context root = trace_context::start();
    auto done = client.spawn([&] {
        client.procedure<void()>("ask").on(front.address()).traced(root)();
        client.procedure<void()>("plain").on(front.address())();
    });
    net.run_until_idle();
    done.get();
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[0], root);
    EXPECT_EQ(seen[1].trace_id, root.trace_id);
    EXPECT_NE(seen[1].span_id, root.span_id);
    EXPECT_TRUE(seen[1].sampled);
}

TEST(trace, is_spelled_as_the_w3c_does) {
    const std::string text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const auto read = trace_context::parse(text);
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->traceparent(), text);
    EXPECT_TRUE(read->sampled);
    EXPECT_TRUE(trace_context::parse("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x"));
    for (const char* wrong : {"", "00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
                              "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                              "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                              "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                              "00-4bf92f3577b34da6a3ce929d0e0e4736x00f067aa0ba902b7-01"}) {
        EXPECT_FALSE(trace_context::parse(wrong)) << wrong;
    }
    EXPECT_NE(trace_context::start(), trace_context::start());
}

}  // namespace
}  // namespace amalgam
