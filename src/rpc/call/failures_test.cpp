#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/event.hpp>

#include "rpc/loop_pair.hpp"

// Failures of calls, on the deterministic network.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

TEST(call_failure, peer_loss_completes_every_pending_call_once) {
    loop_network net;
    engine server{net.port("server")}, client{net.port("client")};
    server.define("echo", [](std::string text) { return text; });
    auto echo = client.procedure<std::string(std::string)>("echo");
    auto first = echo.on(server.address()).start("hello");
    net.run_until_idle();
    EXPECT_EQ(first.get(), "hello");

    std::vector<future<std::string>> calls;
    for (int i = 0; i < 100; ++i)
        calls.push_back(echo.on(server.address()).start("hi"));
    net.cut("server");
    net.run_until_idle();
    for (auto& each : calls) {
        EXPECT_TRUE(each.ready());
        EXPECT_EQ(each.wait().code, errc::disconnected);
    }
    EXPECT_EQ(net.open_operations(), 0u);
}

/// Calls the peer again, once for each call to it that has failed.
struct calls_again final : interceptor {
    void called(std::string_view, const peer& to, status how, clock::duration) override {
        if (how.ok() || left == 0) return;
        --left;
        again.push_back(from->procedure<int(int)>("stay").on(to).start(0));
    }
    engine* from = nullptr;
    int left = 0;
    std::vector<future<int>> again;
};

TEST(call_failure, loss_of_a_peer_ends_also_what_is_called_there_meanwhile_and_no_call_elsewhere) {
    const auto repeats = std::make_shared<calls_again>();
    loop_network net;
    engine gone{net.port("gone")}, stays{net.port("stays")};
    engine client(net.port("client"), {.interceptors = {repeats}});
    repeats->from = &client;
    repeats->left = 30;
    event open;
    for (engine* each : {&gone, &stays}) {
        each->define("stay", [&open](int number) {
            open.wait();
            return number;
        });
    }
    const auto stay = client.procedure<int(int)>("stay");
    const peer to_gone = client.lookup(gone.address()), to_stays = client.lookup(stays.address());
    std::vector<future<int>> lost, kept;
    for (int i = 0; i < 20; ++i) {
        lost.push_back(stay.on(to_gone).start(i));
        kept.push_back(stay.on(to_stays).start(i));
    }
    net.run_until_idle();
    net.cut("gone");
    net.run_until_idle();
    for (future<int>& each : lost)
        EXPECT_EQ(each.wait().code, errc::disconnected);
    EXPECT_EQ(repeats->left, 0);
    ASSERT_EQ(repeats->again.size(), 30u);
    for (future<int>& each : repeats->again) {
        ASSERT_TRUE(each.ready());
        EXPECT_FALSE(each.wait().ok());
    }
    open.set();
    net.run_until_idle();
    for (int i = 0; i < 20; ++i)
        EXPECT_EQ(kept[static_cast<std::size_t>(i)].get(), i);
}

TEST(call_failure, nobody_at_the_address_is_unreachable) {
    loop_pair two;
    const error why = two.in_client(
        [&] { return error_of([&] { two.client.procedure<int()>("f").on("loop://nobody")(); }); });
    EXPECT_EQ(why.code(), errc::unreachable);
    EXPECT_NE(std::string(why.what()).find("loop://nobody"), std::string::npos);
}

TEST(call_failure, a_sentence_shows_the_control_bytes_of_names) {
    loop_pair two;
    const std::string odd("a\0b\x1b[2J", 7);
    const std::string shown = "\"a\\x00b\\x1b[2J\"";
    const auto shows = [&](const error& why, std::string_view rest) {
        const std::string read = why.what();  // Up to the first zero byte.
        return read.find(shown) != std::string::npos && read.find(rest) != std::string::npos;
    };
    const auto call = [&](const peer& whom) {
        return two.in_client(
            [&] { return error_of([&] { two.client.procedure<int()>(odd).on(whom)(); }); });
    };
    EXPECT_TRUE(shows(call(two.there()), "the server defines no procedure \""))
        << call(two.there()).what();
    EXPECT_TRUE(shows(call({}), "the peer is empty")) << call({}).what();
    two.server.define(odd, [](int) {});
    EXPECT_TRUE(shows(call(two.there()), " at the server, but ")) << call(two.there()).what();
    EXPECT_TRUE(shows(error_of([&] { two.server.define(odd, [] {}); }), "is defined already"));
    EXPECT_TRUE(shows(error_of([&] { two.client.procedure<int()>(odd).on(peer{}).post(); }),
                      "the peer is empty"));
}

TEST(call_failure, a_killed_server_ends_calls_whose_handlers_wait) {
    loop_pair two;
    event never;
    two.server.define("wait", [&] { never.wait(); });
    auto wait = two.client.procedure<void()>("wait").on(two.there());
    std::array<future<void>, 10> calls;
    for (auto& each : calls)
        each = wait.start();
    two.net.run_for(10ms);
    EXPECT_FALSE(calls[0].ready());
    two.net.kill("server");
    two.net.run_until_idle();
    for (auto& each : calls)
        EXPECT_EQ(each.wait().code, errc::disconnected);
    // The peer means that run, whoever answers at the address later.
    EXPECT_EQ(two.in_client([&] { return wait.try_call().code(); }), errc::disconnected);
    EXPECT_EQ(two.in_client([&] { return error_of([&] { wait.post(); }); }).code(),
              errc::disconnected);
    never.set();
}

TEST(call_failure, a_restarted_server_is_reached_by_a_new_lookup) {
    loop_pair two;
    auto f = two.client.procedure<int()>("f");
    const peer old = two.there();
    two.server.define("f", [] { return 1; });
    EXPECT_EQ(two.in_client([&] { return f.on(old)(); }), 1);
    engine again{two.net.restart("server")};
    again.define("f", [] { return 2; });
    two.net.run_until_idle();
    EXPECT_EQ(two.in_client([&] { return f.on(old).try_call().code(); }), errc::disconnected);
    EXPECT_EQ(two.in_client([&] { return f.on(two.there())(); }), 2);
}

TEST(call_failure, a_deadline_ends_the_call_on_time_and_the_late_reply_is_dropped) {
    loop_pair two;
    two.server.define("slow", [](int a) {
        const detail::cancel_later it_goes_on_to_the_end;
        this_task::sleep_for(1s);
        return a;
    });
    auto slow = two.client.procedure<int(int)>("slow").on(two.there());
    const auto start = two.net.now();
    future<int> call = slow.within(50ms).start(1);
    clock::time_point ended{};
    auto watch = two.client.spawn([&] {
        EXPECT_EQ(call.wait().code, errc::timed_out);
        ended = two.client.now();
    });
    two.net.run_until_idle();
    EXPECT_EQ(ended - start, 50ms);
    EXPECT_EQ(counters_of(two.client)["rpc.timed_out"], 1u);
    EXPECT_EQ(two.in_client([&] { return slow.within(2s)(7); }), 7);
    // The reply crosses the cancel.
    two.net.delay(10ms);
    EXPECT_EQ(two.in_client([&] { return slow.within(1015ms).try_call(1).code().code; }),
              errc::timed_out);
    EXPECT_EQ(counters_of(two.client)["rpc.late_replies"], 1u);
}

TEST(call_failure, a_late_reply_does_not_end_the_call_that_has_its_slot_now) {
    loop_pair two;
    two.net.delay(10ms);
    two.server.define("slow", [](int a, int pause) {
        this_task::sleep_for(std::chrono::milliseconds(pause));
        return a;
    });
    auto slow = two.client.procedure<int(int, int)>("slow").on(two.there());
    two.in_client([&] {
        // The reply leaves at 30 ms and arrives at 40, before the server learns of the cancel.
        EXPECT_EQ(slow.within(35ms).try_call(1, 20).code(), errc::timed_out);
        EXPECT_EQ(slow(2, 20), 2);
    });
    EXPECT_EQ(counters_of(two.client)["rpc.late_replies"], 1u);
}

// As promised by bound_target::within().
TEST(call_failure, a_call_without_a_limit_waits_as_long_as_its_peer_is_there) {
    loop_pair two;
    event after_years;
    two.server.define("wait", [&] { after_years.wait(); });
    auto call = two.client.procedure<void()>("wait").on(two.there()).start();
    two.net.run_for(10 * 365 * 24h);
    EXPECT_FALSE(call.ready());
    after_years.set();
    two.net.run_until_idle();
    ASSERT_TRUE(call.ready());
    EXPECT_TRUE(call.wait().ok());
}

TEST(call_failure, a_deadline_travels_and_nested_calls_inherit_the_earlier) {
    loop_pair two;
    std::map<std::string, clock::duration> left;
    const auto note = [&](const char* name, engine& here) {
        left[name] = call_context::current().deadline().value_or(here.now()) - here.now();
    };
    two.client.define("inner", [&](bool) { note("inner", two.client); });
    two.server.define("outer", [&](bool shorter) {
        note("outer", two.server);
        this_task::sleep_for(20ms);
        auto inner = two.server.procedure<void(bool)>("inner").on(call_context::current().from());
        shorter ? inner.within(5ms)(true) : inner.within(1h)(true);
    });
    auto outer = two.client.procedure<void(bool)>("outer").on(two.there());
    two.in_client([&] { outer.within(100ms)(false); });
    EXPECT_EQ(left["outer"], 100ms);
    EXPECT_EQ(left["inner"], 80ms);
    two.in_client([&] { outer.within(100ms)(true); });
    EXPECT_EQ(left["inner"], 5ms);
    two.in_client([&] { outer(false); });
    EXPECT_EQ(left["outer"], 0ms);  // No deadline.
}

TEST(call_failure, a_call_whose_deadline_passed_in_the_queue_does_not_run) {
    engine self{"loop://deadline"};  // In real time, to itself.
    bool ran = false;
    self.define("hold", [&] {
        // Occupies the stream past the deadline of the next call, which arrived together with this
        // one.
        const auto until = self.now() + 2ms;
        while (self.now() <= until)
            continue;
    });
    self.define("late", [&] { ran = true; });
    self.run([&] {
        const peer me = self.lookup(self.address());
        auto hold = self.procedure<void()>("hold").on(me);
        auto late = self.procedure<void()>("late").on(me);
        const auto come_late = [&] {
            ran = false;
            hold.post();
            EXPECT_EQ(late.within(1ms).try_call().code(), errc::timed_out);
            hold();  // Queued after the late one.
            return !ran;
        };
        EXPECT_TRUE(come_late()) << "the first call, which brings the name";
        late();
        EXPECT_TRUE(come_late()) << "one like most";
    });
}

TEST(call_failure, the_deadline_is_shown_to_every_kind_of_handler) {
    loop_pair two;
    std::vector<clock::duration> left;
    const auto note = [&] {
        left.push_back(call_context::current().deadline().value_or(two.server.now()) -
                       two.server.now());
    };
    for (const handler how : {handler::ult, handler::inline_}) {
        const std::string kind = how == handler::ult ? "ult" : "inline";
        two.server.define(kind + " number", [&](int a) { return note(), a; }, {.run = how});
        two.server.define(kind + " text", [&](std::string a) { return note(), a; }, {.run = how});
        auto number = two.client.procedure<int(int)>(kind + " number").on(two.there());
        auto text = two.client.procedure<std::string(std::string)>(kind + " text").on(two.there());
        for (int i = 0; i < 2; ++i) {  // The first call of each brings the name.
            two.in_client([&] {
                EXPECT_EQ(number.within(40ms)(i), i);
                EXPECT_EQ(text.within(30ms)("some"), "some");
                number.within(20ms).post(i);
                EXPECT_EQ(text.within(2h)("long"), "long");
                EXPECT_EQ(number(i), i);
            });
            EXPECT_EQ(left, (std::vector<clock::duration>{40ms, 30ms, 20ms, 0ms, 0ms})) << kind;
            left.clear();
        }
    }
}

TEST(call_failure, a_deadline_too_far_away_to_be_told_ends_the_call_all_the_same) {
    loop_pair two;
    event never;
    two.server.define("wait", [&](bool now) {
        if (!now) never.wait();
    });
    auto wait = two.client.procedure<void(bool)>("wait").on(two.there());
    two.in_client([&] { wait(true); });
    const auto start = two.net.now();
    const errc how = two.in_client([&] { return wait.within(2h).try_call(false).code().code; });
    EXPECT_EQ(how, errc::timed_out);
    EXPECT_EQ(two.net.now() - start, 2h);
    EXPECT_EQ(counters_of(two.server)["rpc.canceled"], 1u);
}

TEST(call_failure, a_call_whose_deadline_has_passed_is_not_sent) {
    loop_pair two;
    int ran = 0;
    two.server.define("count", [&] { ++ran; });
    auto count = two.client.procedure<void()>("count").on(two.there());
    two.in_client([&] {
        count();
        EXPECT_EQ(count.within(0ns).try_call().code(), errc::timed_out);
        EXPECT_EQ(count.within(-1s).try_call().code(), errc::timed_out);
    });
    EXPECT_EQ(ran, 1);
}

TEST(call_failure, cancel_completes_once_and_shows_at_the_handler) {
    loop_pair two;
    std::vector<bool> seen;
    two.server.define("work", [&] {
        seen.push_back(call_context::current().canceled());
        EXPECT_EQ(error_of([] { this_task::sleep_for(10ms); }).code(), errc::canceled);
        seen.push_back(call_context::current().canceled());
        return 5;
    });
    auto work = two.client.procedure<int()>("work").on(two.there());
    future<int> call = work.start();
    two.net.run_for(1ms);
    call.cancel();
    call.cancel();
    EXPECT_EQ(call.wait().code, errc::canceled);
    two.net.run_until_idle();
    EXPECT_EQ(seen, (std::vector<bool>{false, true}));
    EXPECT_EQ(counters_of(two.server)["rpc.canceled"], 1u);
}

TEST(call_failure, an_abandoned_future_cancels_its_call) {
    loop_pair two;
    bool canceled = false;
    two.server.define("work", [&] {
        EXPECT_EQ(error_of([] { this_task::sleep_for(10ms); }).code(), errc::canceled);
        canceled = call_context::current().canceled();
    });
    {
        future<void> dropped = two.client.procedure<void()>("work").on(two.there()).start();
        two.net.run_for(1ms);
    }
    two.net.run_until_idle();
    EXPECT_TRUE(canceled);
    EXPECT_EQ(two.net.open_operations(), 0u);
}

TEST(call_failure, the_callers_death_shows_at_the_handler) {
    loop_pair two;
    bool canceled = false;
    two.server.define("work", [&] {
        EXPECT_EQ(error_of([] { this_task::sleep_for(1h); }).code(), errc::canceled);
        canceled = call_context::current().canceled();
    });
    future<void> call = two.client.procedure<void()>("work").on(two.there()).start();
    two.net.run_for(1ms);
    two.net.kill("client");
    two.net.run_until_idle();
    EXPECT_TRUE(canceled);
    EXPECT_EQ(call.wait().code, errc::disconnected);
}

TEST(call_failure, too_many_running_calls_are_overloaded) {
    loop_network net;
    engine server{net.port("server"), {.max_running = 2}};
    engine client{net.port("client")};
    server.define("slow", [] { this_task::sleep_for(10ms); });
    auto slow = client.procedure<void()>("slow").on(server.address());
    std::array<future<void>, 5> calls;
    for (auto& each : calls)
        each = slow.start();
    net.run_until_idle();
    int refused = 0;
    for (auto& each : calls)
        refused += each.wait() == errc::overloaded ? 1 : 0;
    EXPECT_EQ(refused, 3);
    future<void> later = slow.start();
    net.run_until_idle();
    EXPECT_TRUE(later.wait().ok());
}

TEST(call_failure, a_lost_caller_cancels_its_own_calls_but_no_one_way_ones_and_nobody_elses) {
    loop_network net;
    engine server{net.port("server")}, lost{net.port("lost")}, stays{net.port("stays")};
    std::vector<std::string> canceled, finished;
    server.define("wait", [&](std::string who) {
        try {
            this_task::sleep_for(1s);
            finished.push_back(who);
        } catch (const error&) {
            canceled.push_back(who);
            throw;
        }
    });
    auto of_lost = lost.procedure<void(std::string)>("wait").on(server.address());
    auto of_other = stays.procedure<void(std::string)>("wait").on(server.address());
    auto call = of_lost.start("lost");
    auto other = of_other.start("other");
    net.run_for(10ms);
    auto posted = lost.spawn([&] { of_lost.post("one way"); });
    net.run_for(10ms);
    EXPECT_TRUE(posted.ready());
    lost.stop();
    net.run_until_idle();
    EXPECT_EQ(canceled, std::vector<std::string>{"lost"});
    EXPECT_EQ(finished, (std::vector<std::string>{"other", "one way"}));
    EXPECT_TRUE(other.wait().ok());
    EXPECT_FALSE(call.wait().ok());
    EXPECT_EQ(counters_of(server)["rpc.running"], 0u);
}

TEST(call_failure, what_exceeds_the_limit_for_values_is_too_large_in_either_direction) {
    loop_network net({.max_message_bytes = 10'000});
    engine server{net.port("server"), {.max_values_bytes = 15'000}};
    engine client{net.port("client"), {.max_values_bytes = 30'000}};
    server.define("grow", [](std::string text, std::uint32_t to) {
        text.resize(to);
        return text;
    });
    auto grow = client.procedure<std::string(std::string, std::uint32_t)>("grow");
    auto done = client.spawn([&] {
        auto there = grow.on(server.address());
        EXPECT_EQ(there(std::string(14'000, 'a'), 29'000).size(), 29'000u);
        const result<std::string> request = there.try_call(std::string(20'000, 'a'), 1);
        EXPECT_EQ(request.code(), errc::too_large);
        EXPECT_NE(request.sentence().find("max_values_bytes (15000)"), std::string::npos);
        EXPECT_EQ(there.try_call("a", 31'000).code(), errc::too_large);
    });
    net.run_until_idle();
    done.get();
}

TEST(call_failure, a_full_port_queues_calls_in_order_and_holds_callers_back) {
    loop_network net({.inline_bytes = 256, .link_bytes = 2048});
    net.delay(1ms);
    engine server{net.port("server")};
    engine client{net.port("client"), {.max_queued = 8}};
    std::vector<int> seen;
    server.define("note", [&](int n, std::string) { seen.push_back(n); });
    auto note = client.procedure<void(int, std::string)>("note").on(server.address());
    const std::string bulk(200, 'x');
    std::size_t most_open = 0;
    auto done = client.spawn([&] {
        for (int i = 0; i < 300; ++i) {
            note.post(i, bulk);
            most_open = std::max(most_open, net.open_operations());
        }
    });
    auto futures = client.spawn([&] {
        std::vector<future<void>> calls;
        for (int i = 0; i < 300; ++i)
            calls.push_back(note.start(1000 + i, bulk));
        for (auto& each : calls)
            each.get();
    });
    net.run_until_idle();
    EXPECT_TRUE(done.ready());
    ASSERT_TRUE(futures.ready());
    futures.get();
    ASSERT_EQ(seen.size(), 600u);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end(), [](int a, int b) {
        return (a < 1000) == (b < 1000) && a < b;  // Each of the two is in order.
    }));
    EXPECT_EQ(net.open_operations(), 0u);

    // A caller that cannot park gets an error at the limit.
    net.cut("server");
    const error why = error_of([&] {
        for (int i = 0; i < 1000; ++i)
            note.post(i, bulk);
    });
    EXPECT_EQ(why.code(), errc::overloaded);
    net.run_until_idle();
}

TEST(call_failure, whichever_operation_fails_every_call_ends_once) {
    bool reached_the_end = false;
    for (std::uint64_t n = 1; !reached_the_end; ++n) {
        ASSERT_LT(n, 1000u);
        for (const loop_fault fault : {loop_fault::reset, loop_fault::full}) {
            loop_network net({.inline_bytes = 64});
            engine server{net.port("server")}, client{net.port("client")};
            server.define("twice", [](std::string text) { return text + text; });
            server.define("note", [](int) {});
            const std::uint64_t before = net.operations();
            net.fail_operation(n, fault);
            auto twice = client.procedure<std::string(std::string)>("twice");
            const peer there = client.lookup(server.address());
            std::vector<future<std::string>> calls;
            for (const std::size_t bytes : {1u, 300u, 5000u})
                calls.push_back(twice.on(there).start(std::string(bytes, 'x')));
            client.procedure<void(int)>("note").on(there).post(1);
            calls.push_back(twice.on(there).within(1s).start("last"));
            net.run_until_idle();
            for (auto& each : calls) {
                ASSERT_TRUE(each.ready());
                const errc code = each.wait().code;
                EXPECT_TRUE(code == errc::ok || code == errc::disconnected ||
                            code == errc::unreachable)
                    << name(code);
                // A full link is retried; a refused connection is unreachable.
                EXPECT_TRUE(fault == loop_fault::reset || code != errc::disconnected);
            }
            EXPECT_EQ(net.open_operations(), 0u);
            reached_the_end = net.operations() - before < n;
        }
    }
}

TEST(call_failure, every_call_ends_once_on_a_network_that_loses_and_delays) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        loop_network net({.seed = seed, .inline_bytes = 64, .link_bytes = 4096});
        net.delay(0ms, 20ms);
        net.reorder(true);
        net.drop(0.02);
        engine server{net.port("server")}, client{net.port("client")};
        server.define("work", [](std::string text, int pause) {
            this_task::sleep_for(std::chrono::milliseconds(pause));
            return text;
        });
        auto work = client.procedure<std::string(std::string, int)>("work");
        int ended = 0;
        auto runs = client.spawn([&] {
            seeded_random random(seed);
            std::vector<future<std::string>> calls;
            for (int i = 0; i < 100; ++i) {
                const std::string text(random.below(600), 'x');
                const auto limit = std::chrono::milliseconds(1 + random.below(60));
                calls.push_back(work.on(client.lookup(server.address()))
                                    .within(limit)
                                    .start(text, static_cast<int>(random.below(40))));
                if (random.chance(0.3)) this_task::sleep_for(limit / 2);
                if (random.chance(0.1)) calls[random.below(calls.size())].cancel();
            }
            for (auto& each : calls) {
                (void)each.wait();
                ++ended;
            }
        });
        net.run_until_idle();
        EXPECT_EQ(ended, 100) << "seed " << seed;
        EXPECT_EQ(net.open_operations(), 0u) << "seed " << seed;
    }
}

/// Calls a function while being deserialized.
struct read_by_function {
    static inline std::function<void()> while_read;
    template <typename Archive>
    void save(Archive& to) const {
        to(std::uint8_t{1});
    }
    template <typename Archive>
    void load(Archive& from) {
        std::uint8_t one = 0;
        from(one);
        if (while_read) while_read();
    }
    static constexpr std::string_view amalgam_type_name = "read_by_function";
};

TEST(call_failure, reading_a_result_may_cancel_its_own_call) {
    loop_pair net;
    net.server.define("one", [] { return read_by_function(); });
    net.server.define("many", [](stream_writer<read_by_function>& out) {
        for (int i = 0; i < 3; ++i)
            out({});
    });
    net.in_client([&] {
        auto one = net.client.procedure<read_by_function()>("one").on(net.there()).start();
        read_by_function::while_read = [&] { one.cancel(); };
        const status how = one.wait();
        EXPECT_TRUE(how.ok() || how == errc::canceled) << name(how.code);
        auto many = net.client.procedure<streamed<read_by_function>()>("many").on(net.there())();
        read_by_function::while_read = [&] { many.cancel(); };
        try {
            while (many.next())
                continue;
        } catch (const error& why) {  // Unless all had arrived before.
            EXPECT_EQ(why.code().code, errc::canceled);
        }
        read_by_function::while_read = nullptr;
    });
}

}  // namespace
}  // namespace amalgam
