#include <coroutine>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "rpc/loop_pair.hpp"

namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct point {
    double x = 0, y = 0;
    std::vector<std::string> names;
    template <typename Archive>
    void serialize(Archive& a) {
        a(x, y, names);
    }
};

TEST(call, a_handler_gets_the_arguments_and_the_caller_its_result) {
    loop_pair two;
    two.server.define("sum", [](int a, int b) { return a + b; });
    two.server.define(
        "join", [](const std::string& a, std::string_view b) { return a + "/" + std::string(b); });
    const int five = two.in_client(
        [&] { return two.client.procedure<int(int, int)>("sum").on(two.there())(2, 3); });
    EXPECT_EQ(five, 5);
    const std::string joined = two.in_client([&] {
        return two.client.procedure<std::string(std::string, std::string)>("join").on(
            two.server.address())("left", "right");
    });
    EXPECT_EQ(joined, "left/right");
}

// They pass the archives by: see flat_values.hpp.
TEST(call, numbers_of_every_width_travel_to_either_kind_of_handler_in_either_encoding) {
    for (const handler way : {handler::ult, handler::inline_}) {
        for (const encoding as : {encoding::native, encoding::xdr}) {
            loop_network net;
            engine server{net.port("server")}, client{net.port("client"), {.encoding = as}};
            const auto call = [&](auto work) {
                auto done = client.spawn(std::move(work));
                net.run_until_idle();
                return done.get();
            };
            const peer there = client.lookup(server.address());
            using wide = double(std::int8_t, std::uint16_t, std::int32_t, float, std::uint64_t);
            server.define(
                "wide",
                [](std::int8_t a, std::uint16_t b, std::int32_t c, float d, std::uint64_t e) {
                    return a * 2.0 + b + c + d + static_cast<double>(e);
                },
                {.run = way});
            EXPECT_EQ(call([&] {
                          return client.procedure<wide>("wide").on(there)(-3, 65'535, -70'000, 0.5f,
                                                                          1u << 30);
                      }),
                      -6.0 + 65'535 - 70'000 + 0.5 + (1u << 30));
            // As many bytes in either encoding.
            server.define("sum", [](int a, int b) { return a + b; }, {.run = way});
            for (int i = 0; i < 2; ++i)
                EXPECT_EQ(
                    call([&] { return client.procedure<int(int, int)>("sum").on(there)(i, 2); }),
                    i + 2);
            std::int16_t seen = 0;
            server.define("keep", [&](std::int16_t number) { seen = number; }, {.run = way});
            call([&] { client.procedure<void(std::int16_t)>("keep").on(there)(-321); });
            EXPECT_EQ(seen, -321);
            server.define("give", [] { return std::int8_t{-7}; }, {.run = way});
            EXPECT_EQ(call([&] { return client.procedure<std::int8_t()>("give").on(there)(); }),
                      -7);
            EXPECT_EQ(call([&] {
                          return client.procedure<std::int8_t()>("give").on(there).start().get();
                      }),
                      -7);
        }
    }
}

// From the second call on, whose answer needs no look at its names.
TEST(call, results_that_are_numbers_arrive_by_themselves_in_either_encoding) {
    for (const encoding as : {encoding::native, encoding::xdr}) {
        loop_network net;
        engine server{net.port("server")}, client{net.port("client"), {.encoding = as}};
        const auto expect = [&](const char* name, auto value) {
            server.define(name, [value] { return value; });
            auto done = client.spawn([&] {
                const auto give =
                    client.procedure<decltype(value)()>(name).on(client.lookup(server.address()));
                for (int i = 0; i < 2; ++i) {
                    EXPECT_EQ(give(), value);
                    EXPECT_EQ(give.start().get(), value);
                }
            });
            net.run_until_idle();
            done.get();
        };
        expect("double", -2.5);
        expect("float", 0.125f);
        expect("u64", std::uint64_t{0x0102030405060708});
        expect("i64", std::int64_t{-3});
        expect("u32", std::uint32_t{0x01020304});
        expect("i32", std::int32_t{-70'000});
        expect("i16", std::int16_t{-321});
        expect("u8", std::uint8_t{200});
        expect("bool", true);
        expect("text", std::string("four"));  // As long as a number.
        server.define("none", [] {});
        auto done = client.spawn([&] {
            const auto none = client.procedure<void()>("none").on(client.lookup(server.address()));
            for (int i = 0; i < 2; ++i) {
                none();
                none.start().get();
            }
        });
        net.run_until_idle();
        done.get();
    }
}

TEST(call, what_a_handler_of_numbers_throws_reaches_the_caller) {
    for (const handler way : {handler::ult, handler::inline_}) {
        loop_pair two;
        two.server.define("root",
                          [](double of) {
                              if (of < 0)
                                  throw error(errc::invalid, "no root of a negative number");
                              return of;
                          },
                          {.run = way});
        const error why = two.in_client([&] {
            const auto root = two.client.procedure<double(double)>("root").on(two.there());
            EXPECT_EQ(root(4), 4);
            return error_of([&] { root(-1); });
        });
        EXPECT_EQ(why.code(), errc::handler_failed);
        EXPECT_NE(std::string(why.what()).find("no root of a negative"), std::string::npos);
        EXPECT_EQ(counters_of(two.server)["rpc.running"], 0u);
    }
}

TEST(call, a_number_beyond_max_values_bytes_is_refused_like_any_result) {
    loop_network net;
    engine server{net.port("server")}, client{net.port("client"), {.max_values_bytes = 4}};
    server.define("wide", [] { return std::uint64_t{1}; });
    server.define("narrow", [] { return std::uint32_t{1}; });
    auto done = client.spawn([&] {
        const peer there = client.lookup(server.address());
        const auto wide = client.procedure<std::uint64_t()>("wide").on(there);
        for (int i = 0; i < 2; ++i)  // The second one carries no name.
            EXPECT_EQ(error_of([&] { wide(); }).code(), errc::too_large);
        EXPECT_EQ(client.procedure<std::uint32_t()>("narrow").on(there)(), 1u);
    });
    net.run_until_idle();
    done.get();
}

TEST(call, a_procedure_that_is_defined_anew_runs_its_new_handler) {
    loop_pair two;
    const auto call = [&] {
        return two.in_client(
            [&] { return two.client.procedure<int()>("which").on(two.there())(); });
    };
    for (int i = 1; i < 4; ++i) {
        two.server.define("which", [i] { return i; });
        EXPECT_EQ(call(), i);
        EXPECT_EQ(call(), i);
        two.server.undefine("which");
        EXPECT_THROW(call(), error);
    }
}

TEST(call, is_what_list_ults_says_that_its_caller_waits_for) {
    loop_pair two;
    std::string waits_for;
    two.server.define("look", [&] {
        for (const ult_info& each : list_ults())
            waits_for += each.waits_for;
    });
    two.in_client([&] { two.client.procedure<void()>("look").on(two.there())(); });
    EXPECT_EQ(waits_for, "rpc reply");
}

TEST(call, structures_containers_and_no_result_travel) {
    loop_pair two;
    std::map<std::string, point> seen;
    two.server.define("keep", [&](std::map<std::string, point> all) { seen = std::move(all); });
    two.in_client([&] {
        two.client.procedure<void(std::map<std::string, point>)>("keep").on(two.there())(
            {{"a", {1, 2, {"x", "y"}}}, {"b", {3, 4, {}}}});
    });
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen["a"].names, (std::vector<std::string>{"x", "y"}));
    EXPECT_EQ(seen["b"].y, 4);
}

TEST(call, large_arguments_and_results_travel) {
    loop_pair two;
    two.server.define("reverse", [](std::vector<std::uint32_t> v) {
        return std::vector<std::uint32_t>(v.rbegin(), v.rend());
    });
    std::vector<std::uint32_t> sent(500'000);
    for (std::size_t i = 0; i < sent.size(); ++i)
        sent[i] = static_cast<std::uint32_t>(i * i);
    const auto back = two.in_client([&] {
        return two.client
            .procedure<std::vector<std::uint32_t>(std::vector<std::uint32_t>)>("reverse")
            .on(two.there())(sent);
    });
    EXPECT_EQ(back, std::vector<std::uint32_t>(sent.rbegin(), sent.rend()));
}

TEST(call, views_borrow_from_the_message_whatever_its_size) {
    loop_pair two;
    two.server.define("total", [](std::string_view text, std::span<const double> numbers) {
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % alignof(double), 0u);
        double sum = static_cast<double>(text.size());
        for (double each : numbers)
            sum += each;
        return sum;
    });
    two.server.define(
        "total_inline",
        [](std::string_view, std::span<const double> numbers) {
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(numbers.data()) % alignof(double), 0u);
            return numbers.back();
        },
        {.run = handler::inline_});
    for (const std::size_t count : {1u, 20u, 1000u, 100'000u}) {
        const std::vector<double> numbers(count, 0.5);
        using form = double(std::string, std::vector<double>);
        EXPECT_EQ(two.in_client([&] {
            return two.client.procedure<form>("total").on(two.there())("abc", numbers);
        }),
                  3 + 0.5 * static_cast<double>(count));
        EXPECT_EQ(two.in_client([&] {
            return two.client.procedure<form>("total_inline").on(two.there())("abc", numbers);
        }),
                  0.5);
    }
}

TEST(call, futures_overlap) {
    loop_pair two;
    two.net.delay(1ms);
    two.server.define("twice", [](int a) {
        this_task::sleep_for(10ms);
        return 2 * a;
    });
    const auto start = two.net.now();
    const int sum = two.in_client([&] {
        auto twice = two.client.procedure<int(int)>("twice").on(two.there());
        future<int> a = twice.start(1);
        future<int> b = twice.start(2);
        return a.get() + b.get();
    });
    EXPECT_EQ(sum, 6);
    EXPECT_LT(two.net.now() - start, 20ms);
}

TEST(call, a_plain_thread_starts_calls_on_a_driven_engine_and_reads_them_later) {
    loop_pair two;
    two.server.define("twice", [](int a) { return 2 * a; });
    auto twice = two.client.procedure<int(int)>("twice");
    future<int> later = twice.on(two.there()).start(4);
    EXPECT_FALSE(later.ready());
    two.net.run_until_idle();
    EXPECT_EQ(later.get(), 8);
    const error why = error_of([&] { twice.on(two.there())(4); });
    EXPECT_EQ(why.code(), errc::invalid);
}

struct detached {
    struct promise_type {
        detached get_return_object() noexcept { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() noexcept {}
        void unhandled_exception() noexcept { ADD_FAILURE() << "a coroutine threw"; }
    };
};

detached add_up(bound_procedure<int(int)> twice, int& sum) {
    sum += co_await twice.start(1);
    sum += co_await twice.start(10);
    try {
        sum += co_await twice.start(-1);
    } catch (const error& why) {
        if (why.code() == errc::handler_failed) sum += 1000;
    }
}

TEST(call, coroutines_await_calls) {
    loop_pair two;
    two.server.define("twice", [](int a) {
        if (a < 0) throw std::runtime_error("negative");
        return 2 * a;
    });
    int sum = 0;
    add_up(two.client.procedure<int(int)>("twice").on(two.there()), sum);
    two.net.run_until_idle();
    EXPECT_EQ(sum, 1022);
}

TEST(call, one_way_calls_start_in_the_order_they_were_posted) {
    loop_pair two;
    std::vector<int> seen;
    two.server.define("note", [&](int n) { seen.push_back(n); });
    auto note = two.client.procedure<void(int)>("note").on(two.there());
    std::vector<int> sent;
    two.in_client([&] {
        for (int i = 0; i < 500; ++i) {
            note.post(i);
            sent.push_back(i);
        }
    });
    EXPECT_EQ(seen, sent);
}

TEST(call, a_handlers_exception_reaches_the_caller_with_its_text) {
    loop_pair two;
    two.server.define("fail", [](int how) {
        if (how == 0) throw std::out_of_range("the shelf is empty");
        if (how == 1) throw error(errc::denied, "not yours");
        throw 42;
    });
    auto fail = two.client.procedure<void(int)>("fail");
    const auto why = [&](int how) {
        return two.in_client([&] { return error_of([&] { fail.on(two.there())(how); }); });
    };
    EXPECT_EQ(why(0).code(), errc::handler_failed);
    EXPECT_NE(std::string(why(0).what()).find("the shelf is empty"), std::string::npos);
    EXPECT_NE(std::string(why(0).what()).find("\"fail\" at loop://server"), std::string::npos);
    EXPECT_EQ(why(1).code(), errc::handler_failed);
    EXPECT_NE(std::string(why(1).what()).find("denied: not yours"), std::string::npos);
    EXPECT_EQ(why(2).code(), errc::handler_failed);
}

TEST(call, try_call_returns_what_the_other_form_throws) {
    loop_pair two;
    two.server.define("half", [](int a) {
        if (a % 2 != 0) throw std::invalid_argument("odd");
        return a / 2;
    });
    two.server.define("nothing", [] {});
    two.in_client([&] {
        auto half = two.client.procedure<int(int)>("half").on(two.there());
        EXPECT_EQ(half.try_call(8).value(), 4);
        const result<int> odd = half.try_call(7);
        EXPECT_EQ(odd.code(), errc::handler_failed);
        EXPECT_NE(odd.sentence().find("odd"), std::string::npos);
        EXPECT_TRUE(two.client.procedure<void()>("nothing").on(two.there()).try_call().ok());
    });
}

TEST(call, an_unknown_name_is_not_found_and_named) {
    loop_pair two;
    const error why = two.in_client([&] {
        return error_of([&] { two.client.procedure<int(int)>("sun").on(two.there())(1); });
    });
    EXPECT_EQ(why.code(), errc::not_found);
    EXPECT_NE(std::string(why.what()).find("\"sun\""), std::string::npos);
}

TEST(call, sides_that_disagree_on_types_get_a_mismatch_that_names_both) {
    loop_pair two;
    two.server.define("sum", [](double a, double b) { return a + b; });
    const error why = two.in_client([&] {
        return error_of([&] { two.client.procedure<int(int, int)>("sum").on(two.there())(1, 2); });
    });
    EXPECT_EQ(why.code(), errc::mismatch);
    EXPECT_NE(std::string(why.what()).find("f64(f64,f64)"), std::string::npos);
    EXPECT_NE(std::string(why.what()).find("i32(i32,i32)"), std::string::npos);
}

TEST(call, types_changed_after_the_first_call_are_a_mismatch_too) {
    loop_pair two;
    two.server.define("f", [](int a) { return a; });
    auto f = two.client.procedure<int(int)>("f").on(two.there());
    EXPECT_EQ(two.in_client([&] { return f(7); }), 7);
    EXPECT_TRUE(two.server.undefine("f"));
    EXPECT_FALSE(two.server.undefine("f"));
    two.server.define("f", [](std::string a) { return a; });
    // The first call afterwards sends only the id, which is unknown; the next sends the names.
    EXPECT_EQ(two.in_client([&] { return error_of([&] { f(7); }); }).code(), errc::not_found);
    EXPECT_EQ(two.in_client([&] { return error_of([&] { f(7); }); }).code(), errc::mismatch);
}

TEST(call, a_call_to_oneself_behaves_the_same) {
    loop_pair two;
    two.client.define("f", [](const std::string& a) {
        EXPECT_TRUE(call_context::current().from().is_self());
        if (a.empty()) throw std::invalid_argument("empty");
        return a + a;
    });
    std::vector<int> seen;
    two.client.define("note", [&](int n) { seen.push_back(n); });
    const peer self = two.client.lookup(two.client.address());
    EXPECT_TRUE(self.is_self());
    two.in_client([&] {
        auto f = two.client.procedure<std::string(std::string)>("f").on(self);
        EXPECT_EQ(f("ab"), "abab");
        EXPECT_EQ(f(std::string(100'000, 'x')).size(), 200'000u);
        EXPECT_EQ(error_of([&] { f(""); }).code(), errc::handler_failed);
        EXPECT_EQ(error_of([&] { two.client.procedure<int()>("g").on(self)(); }).code(),
                  errc::not_found);
        for (int i = 0; i < 3000; ++i)
            two.client.procedure<void(int)>("note").on(self).post(i);
    });
    ASSERT_EQ(seen.size(), 3000u);
    EXPECT_EQ(seen[2999], 2999);
}

TEST(call, a_handler_calls_back_whoever_called_it) {
    loop_pair two;
    two.client.define("name", [] { return std::string("client"); });
    two.server.define("greet", [&] {
        auto name = two.server.procedure<std::string()>("name");
        EXPECT_EQ(&call_context::current().where(), &two.server);
        EXPECT_EQ(call_context::current().procedure(), "greet");
        return "hello " + name.on(call_context::current().from())();
    });
    EXPECT_EQ(two.in_client(
                  [&] { return two.client.procedure<std::string()>("greet").on(two.there())(); }),
              "hello client");
}

TEST(call, inline_handlers_answer_from_the_progress_stream) {
    loop_pair two;
    bool in_ult = true;
    two.server.define("where",
                      [&](std::string text) {
                          in_ult = this_task::in_ult();
                          EXPECT_EQ(call_context::current().procedure(), "where");
                          return text;
                      },
                      {.run = handler::inline_});
    for (const std::size_t bytes : {10u, 1000u, 3'000'000u}) {
        const std::string text(bytes, 'q');
        EXPECT_EQ(two.in_client([&] {
            return two.client.procedure<std::string(std::string)>("where").on(two.there())(text);
        }),
                  text);
        // Fetching arguments requires waiting, so those handlers run in a ULT.
        EXPECT_EQ(in_ult, bytes > 1'000'000);
    }
    EXPECT_EQ(call_context::try_current(), nullptr);
}

TEST(call, peers_that_are_nobody_or_another_engines_are_refused) {
    loop_pair two;
    auto f = two.client.procedure<int()>("f");
    const peer theirs = two.server.lookup(two.client.address());
    two.in_client([&] {
        EXPECT_EQ(error_of([&] { f.on(peer())(); }).code(), errc::invalid);
        EXPECT_EQ(error_of([&] { f.on(theirs)(); }).code(), errc::invalid);
        EXPECT_EQ(error_of([&] { f.on(theirs).post(); }).code(), errc::invalid);
    });
}

struct meters {
    operator double() const { return 2.5; }
};

TEST(call, handlers_of_numbers_may_take_and_return_them_in_any_form) {
    for (const handler way : {handler::ult, handler::inline_}) {
        loop_pair two;
        static constexpr std::int16_t fixed = -2;
        two.server.define("refer", [](const std::int16_t&) -> const std::int16_t& { return fixed; },
                          {.run = way});
        two.server.define("take",
                          [](std::uint8_t&& a, const char b, char16_t c) {
                              return static_cast<std::int64_t>(a) * b - c;
                          },
                          {.run = way});
        two.server.define<double(int)>("length", [](int) { return meters(); }, {.run = way});
        two.server.define<void(int)>("drop", [](int a) { return a; }, {.run = way});
        two.server.define("odd", [](std::uint32_t a) { return a % 2 != 0; }, {.run = way});
        two.server.define("fail", [](int a) -> int { throw a; }, {.run = way});
        two.in_client([&] {
            for (int i = 0; i < 3; ++i) {  // From the second on without names.
                const auto at = [&]<typename S>(std::type_identity<S>, const char* name) {
                    return two.client.procedure<S>(name).on(two.there());
                };
                using std::type_identity;
                EXPECT_EQ(at(type_identity<std::int16_t(std::int16_t)>(), "refer")(7), -2);
                EXPECT_EQ(at(type_identity<std::int64_t(std::uint8_t, char, char16_t)>(), "take")(
                              200, 'd', u'\xffff'),
                          200 * 'd' - 0xffff);
                EXPECT_EQ(at(type_identity<double(int)>(), "length")(1), 2.5);
                at(type_identity<void(int)>(), "drop")(1);
                EXPECT_TRUE(at(type_identity<bool(std::uint32_t)>(), "odd")(3));
                const auto fail = at(type_identity<int(int)>(), "fail");
                EXPECT_EQ(error_of([&] { fail(1); }).code(), errc::handler_failed);
            }
        });
        EXPECT_EQ(counters_of(two.server)["rpc.running"], 0u);
        EXPECT_EQ(counters_of(two.server)["rpc.served"], 18u);
    }
}

// The table remembers the procedure that it found last.
TEST(call, a_handler_may_replace_and_withdraw_its_own_procedure) {
    for (const handler way : {handler::ult, handler::inline_}) {
        loop_pair two;
        const auto owned = std::make_shared<int>(1);
        two.server.define("once",
                          [&, owned](int a) {
                              two.server.undefine("once");
                              two.server.define("once", [](int b) { return 10 * b; }, {.run = way});
                              return a + *owned;
                          },
                          {.run = way});
        const auto call = [&] {
            return two.in_client(
                [&] { return two.client.procedure<int(int)>("once").on(two.there())(4); });
        };
        EXPECT_EQ(call(), 5);
        EXPECT_EQ(call(), 40);
        EXPECT_EQ(owned.use_count(), 1);  // The first one is gone.
        two.server.undefine("once");
        EXPECT_THROW(call(), error);
    }
}

TEST(call, a_procedure_that_is_withdrawn_while_it_runs_is_not_found_any_more) {
    loop_pair two;
    event go;
    two.server.define("wait", [&](int a) {
        if (a == 0) go.wait();
        return a;
    });
    const auto wait = two.client.procedure<int(int)>("wait").on(two.there());
    EXPECT_EQ(two.in_client([&] { return wait(1); }), 1);
    auto running = two.client.spawn([&] { return wait(0); });
    two.net.run_until_idle();
    two.server.undefine("wait");
    EXPECT_EQ(two.in_client([&] { return error_of([&] { wait(1); }); }).code(), errc::not_found);
    go.set();
    two.net.run_until_idle();
    EXPECT_EQ(running.get(), 0);
}

}  // namespace
}  // namespace amalgam
