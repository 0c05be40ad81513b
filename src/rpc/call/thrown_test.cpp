#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include <amalgam/rpc/interceptor.hpp>

#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

// Every user function throws every kind of exception: one call fails, and nothing else.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

struct not_an_exception {
    std::string text;
};

struct error_without_a_text : error {
    error_without_a_text() : error(errc::denied, "") {}
    const char* what() const noexcept override { return nullptr; }
};

struct exception_without_a_text : std::exception {
    const char* what() const noexcept override { return nullptr; }
};

struct kind {
    const char* name;
    void (*raise)();
};

const kind kinds[] = {
    {"an error", [] { throw error(errc::denied, "it says so"); }},
    {"an error without a code", [] { throw error(errc::ok, "it says so"); }},
    {"an error of a lost peer", [] { throw error(errc::disconnected, "it says so"); }},
    {"an error whose text is null", [] { throw error_without_a_text(); }},
    {"a std::exception whose text is null", [] { throw exception_without_a_text(); }},
    {"a std::exception", [] { throw std::runtime_error("it says so"); }},
    {"a std::bad_alloc", [] { throw std::bad_alloc(); }},
    {"an int", [] { throw 7; }},
    {"a struct", [] { throw not_an_exception{"it says so"}; }},
};

using action = std::function<void()>;
action at_save, at_load, at_move;

struct fragile {
    fragile() = default;
    explicit fragile(int number) : n(number) {}
    fragile(const fragile&) = default;
    fragile(fragile&& other) : n(other.n) {
        if (at_move) at_move();
    }
    fragile& operator=(const fragile&) = default;
    int n = 0;
    template <typename Archive>
    void save(Archive& to) const {
        to(n);
        if (at_save) at_save();
    }
    template <typename Archive>
    void load(Archive& from) {
        from(n);
        if (at_load) at_load();
    }
    static constexpr std::string_view amalgam_type_name = "fragile";
};

/// Counts the begin and end hooks of calls, and throws in one of four.
struct hook : interceptor {
    action at_calling, at_called, at_serving, at_served;
    int called_open = 0, served_open = 0;

    void calling(outgoing_call& call) override {
        if (at_calling) at_calling();
        called_open += call.one_way() ? 0 : 1;
    }
    void called(std::string_view, const peer&, status, clock::duration) override {
        --called_open;
        if (at_called) at_called();
    }
    void serving(call_context& call) override {
        if (call.procedure().starts_with("amalgam.")) return;
        if (at_serving) at_serving();
        ++served_open;
    }
    void served(call_context& call, status, clock::duration) override {
        if (call.procedure().starts_with("amalgam.")) return;
        --served_open;
        if (at_served) at_served();
    }
};

struct fixture {
    loop_network net;
    std::shared_ptr<hook> hooks[4] = {std::make_shared<hook>(), std::make_shared<hook>(),
                                      std::make_shared<hook>(), std::make_shared<hook>()};
    engine server{net.port("server"), {.interceptors = {hooks[0], hooks[1]}}};
    engine client{net.port("client"), {.interceptors = {hooks[2], hooks[3]}}};
    peer there = client.lookup(server.address());

    template <typename Signature>
    bound_procedure<Signature> call(const char* name) {
        return client.procedure<Signature>(name).on(there);
    }
    template <typename Work>
    auto in_client(Work work) {
        auto done = client.spawn(std::move(work));
        net.run_until_idle();
        EXPECT_TRUE(done.ready());
        return done.get();
    }
};

/// Result of the call; ok if decided before the function throws, and `let_through` if the caller
/// got the exception itself.
constexpr errc let_through = errc::internal;

template <typename Call>
errc outcome_of(Call call) {
    try {
        call();
        return errc::ok;
    } catch (const error& why) {
        return why.code().ok() ? let_through : why.code().code;
    } catch (...) {
        return let_through;
    }
}

enum class expected { handler_failed, caller_sees_it, mismatch, refused, refused_there, ok };

struct place {
    const char* name;
    expected outcome;
    errc (*run)(fixture& f, const action& raise);
};

template <typename... How>
errc serve(fixture& f, How... how) {
    f.server.define("f", how...);
    return f.in_client([&] { return f.call<fragile()>("f").try_call().code().code; });
}

const place places[] = {
    {"a handler", expected::handler_failed,
     [](fixture& f, const action& raise) {
         return serve(f, [raise] {
             raise();
             return fragile(1);
         });
     }},
    {"an inline handler", expected::handler_failed,
     [](fixture& f, const action& raise) {
         return serve(
             f,
             [raise] {
                 raise();
                 return fragile(1);
             },
             procedure_options{.run = handler::inline_});
     }},
    {"a handler with a responder", expected::handler_failed,
     [](fixture& f, const action& raise) {
         return serve(f, [raise](responder<fragile>) { raise(); });
     }},
    {"a handler that has answered", expected::ok,
     [](fixture& f, const action& raise) {
         return serve(f, [raise](responder<fragile> answer) {
             answer(fragile(1));
             raise();
         });
     }},
    {"the writing of a result", expected::handler_failed,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"the writing of an inline result", expected::handler_failed,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return serve(
             f, [] { return fragile(1); }, procedure_options{.run = handler::inline_});
     }},
    {"the writing of a responder's result", expected::handler_failed,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return serve(f, [](responder<fragile> answer) {
             const fragile one(1);
             EXPECT_NO_THROW(answer(one));
         });
     }},
    {"the writing of a late responder's result", expected::handler_failed,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return serve(f, [&f](responder<fragile> answer) {
             post(f.server.pool(), [late = std::move(answer)]() mutable {
                 const fragile one(1);
                 EXPECT_NO_THROW(late(one));
             });
         });
     }},
    {"the reading of a result", expected::mismatch,
     [](fixture& f, const action& raise) {
         at_load = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"the moving of a result to a function", expected::mismatch,
     [](fixture& f, const action& raise) {
         f.server.define("f", [] { return fragile(1); });
         errc how = errc::ok;
         f.call<fragile()>("f").call_then(
             [&](const result<fragile>& got) { how = got.code().code; });
         at_move = raise;
         f.net.run_until_idle();
         at_move = nullptr;
         return how;
     }},
    {"the reading of an argument", expected::handler_failed,
     [](fixture& f, const action& raise) {
         f.server.define("g", [](const fragile&) {});
         at_load = raise;
         return f.in_client(
             [&] { return f.call<void(fragile)>("g").try_call(fragile(1)).code().code; });
     }},
    {"the writing of an argument, tried", expected::refused,
     [](fixture& f, const action& raise) {
         f.server.define("g", [](const fragile&) {});
         at_save = raise;
         return f.in_client(
             [&] { return f.call<void(fragile)>("g").try_call(fragile(1)).code().code; });
     }},
    {"the writing of an argument", expected::caller_sees_it,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return f.in_client(
             [&] { return outcome_of([&] { f.call<void(fragile)>("g")(fragile(1)); }); });
     }},
    {"the writing of a started call's argument", expected::caller_sees_it,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return outcome_of([&] { (void)f.call<void(fragile)>("g").start(fragile(1)); });
     }},
    {"the writing of an argument before call_then()", expected::caller_sees_it,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return outcome_of([&] {
             f.call<void(fragile)>("g").call_then([](const result<void>&) { ADD_FAILURE(); },
                                                  fragile(1));
         });
     }},
    {"the writing of a one-way call's argument", expected::caller_sees_it,
     [](fixture& f, const action& raise) {
         at_save = raise;
         return outcome_of([&] { f.call<void(fragile)>("g").post(fragile(1)); });
     }},
    {"a function of call_then()", expected::ok,
     [](fixture& f, const action& raise) {
         f.server.define("f", [] { return 1; });
         errc how = errc::internal;
         f.call<int()>("f").call_then([&](const result<int>& got) {
             how = got.code().code;
             raise();
         });
         f.net.run_until_idle();
         return how;
     }},
    {"a producer of a stream", expected::handler_failed,
     [](fixture& f, const action& raise) {
         f.server.define("s", [raise](stream_writer<int>& out) {
             out(1);
             raise();
         });
         return f.in_client([&] {
             auto values = f.call<streamed<int>()>("s")();
             EXPECT_EQ(values.next(), 1);
             return outcome_of([&] { values.next(); });
         });
     }},
    {"the writing of a value of a stream", expected::handler_failed,
     [](fixture& f, const action& raise) {
         f.server.define("s", [](stream_writer<fragile>& out) { out(fragile(1)); });
         at_save = raise;
         return f.in_client([&] {
             auto values = f.call<streamed<fragile>()>("s")();
             return outcome_of([&] { values.next(); });
         });
     }},
    {"the writing of a value that the producer does without", expected::ok,
     [](fixture& f, const action& raise) {
         f.server.define("s", [](stream_writer<fragile>& out) {
             for (int i = 0; i < 10; ++i) {  // More than the window.
                 try {
                     out(fragile(i));
                     ADD_FAILURE();
                 } catch (...) {
                 }
             }
             at_save = nullptr;
             out(fragile(10));
         });
         at_save = raise;
         return f.in_client([&] {
             auto values = f.call<streamed<fragile>()>("s").window(2)();
             return outcome_of([&] {
                 EXPECT_EQ(values.next()->n, 10);
                 EXPECT_FALSE(values.next().has_value());
             });
         });
     }},
    {"the reading of a value of a stream", expected::mismatch,
     [](fixture& f, const action& raise) {
         f.server.define("s", [](stream_writer<fragile>& out) { out(fragile(1)); });
         at_load = raise;
         return f.in_client([&] {
             auto values = f.call<streamed<fragile>()>("s")();
             return outcome_of([&] { values.next(); });
         });
     }},
    {"calling() of an interceptor", expected::refused,
     [](fixture& f, const action& raise) {
         f.hooks[3]->at_calling = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"calling() of an interceptor, of a one-way call", expected::refused,
     [](fixture& f, const action& raise) {
         f.server.define("g", [] {});
         f.hooks[3]->at_calling = raise;
         return outcome_of([&] { f.call<void()>("g").post(); });
     }},
    {"called() of an interceptor", expected::ok,
     [](fixture& f, const action& raise) {
         f.hooks[3]->at_called = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"serving() of an interceptor", expected::refused_there,
     [](fixture& f, const action& raise) {
         f.hooks[1]->at_serving = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"serving() of an interceptor, inline", expected::refused_there,
     [](fixture& f, const action& raise) {
         f.hooks[1]->at_serving = raise;
         return serve(
             f, [] { return fragile(1); }, procedure_options{.run = handler::inline_});
     }},
    {"serving() of an interceptor, with a responder", expected::refused_there,
     [](fixture& f, const action& raise) {
         f.hooks[1]->at_serving = raise;
         return serve(f, [](responder<fragile> answer) { answer(fragile(1)); });
     }},
    {"served() of an interceptor", expected::ok,
     [](fixture& f, const action& raise) {
         f.hooks[1]->at_served = raise;
         return serve(f, [] { return fragile(1); });
     }},
    {"served() of an interceptor, with a responder", expected::ok,
     [](fixture& f, const action& raise) {
         f.hooks[1]->at_served = raise;
         return serve(f, [](responder<fragile> answer) { answer(fragile(1)); });
     }},
    {"a function of run()", expected::caller_sees_it,
     [](fixture& f, const action& raise) {
         return f.in_client(
             [&] { return outcome_of([&] { f.client.run([&raise] { raise(); }); }); });
     }},
    {"a function of on_peer_lost()", expected::ok,
     [](fixture& f, const action& raise) {
         int told = 0;
         const auto throws = f.server.on_peer_lost([&](const peer&, status) { raise(); });
         const auto counts = f.server.on_peer_lost([&](const peer&, status) { ++told; });
         for (int i = 0; i < 2; ++i) {
             engine gone(f.net.port("gone" + std::to_string(i)));
             auto ping = gone.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
                             .on(f.server.address())
                             .start(1);
             f.net.run_until_idle();
             EXPECT_TRUE(ping.wait().ok());
         }
         f.net.run_until_idle();
         EXPECT_EQ(told, 2);
         return errc::ok;
     }},
};

bool fits(errc got, expected what, const kind& thrown) {
    const bool is_error = std::string_view(thrown.name).starts_with("an error");
    const bool no_code = std::string_view(thrown.name).ends_with("without a code");
    const bool no_memory = std::string_view(thrown.name).ends_with("bad_alloc");
    const errc its_own =
        std::string_view(thrown.name).ends_with("peer") ? errc::disconnected : errc::denied;
    const auto as_told = [&](errc otherwise) {
        if (no_memory) return got == errc::no_memory;
        return got == (is_error && !no_code ? its_own : otherwise);
    };
    switch (what) {
        case expected::ok:
            return got == errc::ok;
        case expected::handler_failed:
            return got == errc::handler_failed;
        case expected::caller_sees_it:
            return is_error && !no_code ? got == its_own : got == let_through;
        case expected::mismatch:
            return as_told(errc::mismatch);
        case expected::refused:
            return as_told(errc::invalid);
        case expected::refused_there:
            if (is_error) return got == (no_code ? errc::denied : its_own);
            return got == errc::handler_failed;
    }
    return false;
}

TEST(thrown, whatever_a_function_of_the_users_throws_ends_its_own_call_only) {
    for (const place& where : places) {
        for (const kind& what : kinds) {
            SCOPED_TRACE(std::string(where.name) + " throws " + what.name);
            at_save = at_load = at_move = nullptr;
            fixture f;
            const errc got = where.run(f, what.raise);
            EXPECT_TRUE(fits(got, where.outcome, what)) << name(got);
            at_save = at_load = at_move = nullptr;
            f.net.run_until_idle();
            for (const auto& each : f.hooks) {
                each->at_calling = each->at_called = each->at_serving = each->at_served = nullptr;
                EXPECT_EQ(each->called_open, 0);
                EXPECT_EQ(each->served_open, 0);
            }
            f.server.define("good", [](const fragile& n) { return fragile(n.n + 1); });
            EXPECT_EQ(f.in_client([&] {
                           EXPECT_EQ(call_context::try_current(), nullptr);
                           return f.call<fragile(fragile)>("good")(fragile(6));
                       }).n,
                      7);
            EXPECT_EQ(f.client.core().caller().pending(), 0u);
            EXPECT_EQ(f.server.core().server().running(), 0u);
            EXPECT_EQ(f.net.open_operations(), 0u);
        }
    }
}

TEST(thrown, a_result_is_read_where_its_future_finds_it_and_not_moved_there) {
    fixture f;
    f.server.define("f", [] { return fragile(1); });
    auto later = f.call<fragile()>("f").start();
    at_move = [] { throw std::runtime_error("moved"); };
    f.net.run_until_idle();
    EXPECT_TRUE(later.ready());
    EXPECT_TRUE(later.wait().ok());
    EXPECT_THROW((void)later.get(), std::runtime_error);
    EXPECT_FALSE(later.valid());
    at_move = nullptr;
}

TEST(thrown, a_caller_reads_what_was_thrown) {
    fixture f;
    f.server.define("empty", [] { throw exception_without_a_text(); });
    f.server.define("runtime", [] { throw std::runtime_error("too blue"); });
    f.server.define("int", [] { throw 7; });
    f.server.define("own", [] { throw error(errc::not_found, "no such colour"); });
    const auto told = [&](const char* procedure) {
        return f.in_client([&] { return f.call<void()>(procedure).try_call(); }).sentence();
    };
    EXPECT_NE(told("runtime").find("too blue"), std::string::npos);
    EXPECT_NE(told("int").find("the handler threw an exception not derived from std::exception"),
              std::string::npos);
    EXPECT_NE(told("own").find("no such colour"), std::string::npos);
    EXPECT_NE(told("empty").find("an exception without a message"), std::string::npos);
    f.server.define("its own, empty", [] { throw error_without_a_text(); });
    EXPECT_NE(told("its own, empty").find("an exception without a message"), std::string::npos);
    for (const action& raises : {action([] { throw exception_without_a_text(); }),
                                 action([] { throw error_without_a_text(); })}) {
        at_save = raises;
        const auto got = f.call<void(fragile)>("own").try_call(fragile(1));
        at_save = nullptr;
        EXPECT_NE(got.sentence().find("an exception without a message"), std::string::npos);
    }
    f.hooks[3]->at_calling = [] { throw std::runtime_error("too late"); };
    EXPECT_NE(told("own").find("calling() of an interceptor threw: too late"), std::string::npos);
}

}  // namespace
}  // namespace amalgam
