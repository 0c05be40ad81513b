#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/extension/origin.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/tasklet.hpp>

#include "rpc/loop_pair.hpp"

// An engine stopped or destroyed by code that it runs, from every place where a user's function is
// called.
namespace amalgam {
namespace {

using namespace std::chrono_literals;

/// Runs in interceptors, and when a `loud` value is deserialized.
struct hook : interceptor {
    std::function<void()> at_calling, at_called, at_serving, at_served;
    void calling(outgoing_call&) override {
        if (at_calling) at_calling();
    }
    void called(std::string_view, const peer&, status, clock::duration) override {
        if (at_called) at_called();
    }
    void serving(call_context& call) override {
        if (at_serving && !call.procedure().starts_with("amalgam.")) at_serving();
    }
    void served(call_context& call, status, clock::duration) override {
        if (at_served && !call.procedure().starts_with("amalgam.")) at_served();
    }
};

std::function<void()> at_load, at_save;

struct loud {
    int n = 0;
    template <typename Archive>
    void save(Archive& to) const {
        to(n);
    }
    template <typename Archive>
    void load(Archive& from) {
        from(n);
        if (at_load) at_load();
    }
    static constexpr std::string_view amalgam_type_name = "loud";
};

/// Holds a reference to the engine's core, like a bulk descriptor.
struct lending {
    int n = 0;
    template <typename Archive>
    void save(Archive& to) const {
        to(n);
        detail::lend(to.between(), std::make_shared<detail::core_reference>(*to.between()->here),
                     1);
        if (at_save) at_save();
    }
    template <typename Archive>
    void load(Archive& from) {
        from(n);
    }
    static constexpr std::string_view amalgam_type_name = "lending";
};

/// Two engines, one of which is ended by `act`.
struct world {
    explicit world(const std::string& uri) {
        std::string to = uri;
        if (uri.starts_with("loop")) to += "-client";
        engine_options serves{.streams = 2, .interceptors = {at_server}, .drain = 10ms};
        engine_options calls{.streams = 2, .interceptors = {at_client}, .drain = 10ms};
        if (uri == "virtual") {
            net.emplace();
            serves.streams = calls.streams = stream_set(1);
            server = std::make_unique<engine>(net->port("server"), serves);
            client = std::make_unique<engine>(net->port("client"), calls);
        } else {
            server = std::make_unique<engine>(uri, serves);
            client = std::make_unique<engine>(to, calls);
        }
        server->define("one", [] { return 1; }, {.run = handler::inline_});
        server->define("slow", [] { this_task::sleep_for(1h); });
        server->define("loud", [](int n) { return loud{n}; });
        server->define("louder", [](stream_writer<loud>& out) {
            for (int i = 0; i < 3; ++i)
                out(loud{i});
        });
        there = client->lookup(server->address());
    }
    ~world() {
        if (net) {
            server.reset();
            client.reset();
        }
    }
    template <typename Done>
    void until(Done done) {
        if (net) {
            net->run_until_idle();
            ASSERT_TRUE(done());
        }
        while (!done())
            std::this_thread::yield();
    }
    template <typename Signature>
    bound_procedure<Signature> call(const char* name) {
        return client->procedure<Signature>(name).on(there);
    }

    std::optional<loop_network> net;
    std::shared_ptr<hook> at_server = std::make_shared<hook>();
    std::shared_ptr<hook> at_client = std::make_shared<hook>();
    std::unique_ptr<engine> server, client;
    peer there;
};

using action = std::function<void()>;

struct place {
    const char* name;
    bool at_server;
    void (*arrange)(world& w, const action& act);
};

const place places[] = {
    {"a function of call_then()", false,
     [](world& w, const action& act) {
         w.call<int()>("one").call_then([act](const result<int>&) { act(); });
     }},
    {"a function of call_then(), in a ULT", false,
     [](world& w, const action& act) {
         post(w.client->pool(),
              [&w, act] { w.call<int()>("one").call_then([act](const result<int>&) { act(); }); });
     }},
    {"a function of call_then(), at a deadline", false,
     [](world& w, const action& act) {
         w.call<void()>("slow").within(1ms).call_then([act](const result<void>&) { act(); });
     }},
    {"a function of call_then(), before it returns", false,
     [](world& w, const action& act) {
         post(w.client->pool(), [&w, act] {
             w.client->procedure<int()>("one").on(peer()).call_then(
                 [act](const result<int>&) { act(); });
         });
     }},
    {"a function of call_then(), of a call to oneself", false,
     [](world& w, const action& act) {
         w.client->define("two", [] { return 2; });
         w.client->procedure<int()>("two")
             .on(w.client->address())
             .call_then([act](const result<int>&) { act(); });
     }},
    {"a function of call_then(), when the peer is lost", false,
     [](world& w, const action& act) {
         w.call<void()>("slow").call_then([act](const result<void>&) { act(); });
         w.until([&] { return counters_of(*w.server)["rpc.served"] != 0; });
         w.server.reset();
     }},
    {"calling() of an interceptor", false,
     [](world& w, const action& act) {
         w.at_client->at_calling = act;
         post(w.client->pool(),
              [&w] { w.call<int()>("one").call_then([](const result<int>&) {}); });
     }},
    {"calling() of an interceptor, outside of the engine", false,
     [](world& w, const action& act) {
         w.at_client->at_calling = act;
         w.call<int()>("one").call_then([](const result<int>&) {});
     }},
    {"calling() of an interceptor, of a call behind a future", false,
     [](world& w, const action& act) {
         w.at_client->at_calling = act;
         EXPECT_EQ(w.call<int()>("one").start().wait(), errc::closed);
     }},
    {"calling() of an interceptor, of a call that waits", false,
     [](world& w, const action& act) {
         if (w.net) return act();  // Waiting is not allowed in virtual time.
         w.at_client->at_calling = act;
         EXPECT_EQ(w.call<int()>("one").try_call().code(), errc::closed);
     }},
    {"calling() of an interceptor, of a one-way call", false,
     [](world& w, const action& act) {
         w.at_client->at_calling = act;
         EXPECT_EQ(error_of([&] { w.call<int()>("one").post(); }).code(), errc::closed);
     }},
    {"called() of an interceptor", false,
     [](world& w, const action& act) {
         w.at_client->at_called = act;
         w.call<int()>("one").call_then([](const result<int>&) {});
     }},
    {"the reading of a result", false,
     [](world& w, const action& act) {
         at_load = act;
         w.call<loud(int)>("loud").call_then([](const result<loud>&) {}, 1);
     }},
    {"the reading of a value of a stream", false,
     [](world& w, const action& act) {
         at_load = act;
         post(w.client->pool(), [values = w.call<streamed<loud>()>("louder")()]() mutable {
             while (values.next())
                 continue;
         });
     }},
    {"a ULT", false, [](world& w, const action& act) { post(w.client->pool(), [act] { act(); }); }},
    {"a ULT of another stream", false,
     [](world& w, const action& act) {
         post(w.client->stream(w.client->stream_count() - 1).main_pool(), [act] { act(); });
     }},
    {"a tasklet", false,
     [](world& w, const action& act) { post_tasklet(w.client->stream(), [act] { act(); }); }},
    {"a tasklet of another stream", false,
     [](world& w, const action& act) {
         post_tasklet(w.client->stream(w.client->stream_count() - 1), [act] { act(); });
     }},
    {"an inline handler", true,
     [](world& w, const action& act) {
         w.server->define("end", [act] { act(); }, {.run = handler::inline_});
         w.call<void()>("end").call_then([](const result<void>&) {});
     }},
    {"an inline handler that calls itself", true,
     [](world& w, const action& act) {
         w.server->define("end", [act] { act(); }, {.run = handler::inline_});
         w.server->procedure<void()>("end")
             .on(w.server->address())
             .call_then([](const result<void>&) {});
     }},
    {"an inline handler with a responder", true,
     [](world& w, const action& act) {
         w.server->define("end",
                          [act](responder<int> answer) {
                              answer(1);
                              act();
                          },
                          {.run = handler::inline_});
         w.call<int()>("end").call_then([](const result<int>&) {});
     }},
    {"a handler", true,
     [](world& w, const action& act) {
         w.server->define("end", [act] {
             act();
             return std::string(100'000, 'x');
         });
         w.call<std::string()>("end").call_then([](const result<std::string>&) {});
     }},
    {"a handler of another stream", true,
     [](world& w, const action& act) {
         w.server->define("end", [act] { act(); },
                          {.in = &w.server->stream(w.server->stream_count() - 1).main_pool()});
         w.call<void()>("end").call_then([](const result<void>&) {});
     }},
    {"a producer of a stream", true,
     [](world& w, const action& act) {
         w.server->define("end", [act](stream_writer<int>& out) {
             out(1);
             act();
             out(2);
         });
         post(w.client->pool(), [values = w.call<streamed<int>()>("end")()]() mutable {
             while (values.next())
                 continue;
         });
     }},
    {"serving() of an interceptor", true,
     [](world& w, const action& act) {
         w.at_server->at_serving = act;
         w.call<int()>("one").call_then([](const result<int>&) {});
     }},
    {"served() of an interceptor", true,
     [](world& w, const action& act) {
         w.at_server->at_served = act;
         w.call<int()>("one").call_then([](const result<int>&) {});
     }},
    {"a function of on_peer_lost()", true,
     [](world& w, const action& act) {
         static peer_lost_subscription told;
         told = w.server->on_peer_lost([act](const peer&, status) { act(); });
         w.call<int()>("one").call_then([](const result<int>&) {});
         w.until([&] { return counters_of(*w.client)["rpc.calls"] == 1; });
         w.until([&] { return counters_of(*w.server)["rpc.served"] != 0; });
         w.client.reset();
     }},
    {"a callback of another engine", true,
     [](world& w, const action& act) {
         w.call<int()>("one").call_then([act](const result<int>&) { act(); });
     }},
    {"a handler of another engine", false,
     [](world& w, const action& act) {
         w.server->define("end", [act] { act(); });
         w.call<void()>("end").call_then([](const result<void>&) {});
     }},
    {"an inline handler of another engine", false,
     [](world& w, const action& act) {
         w.server->define("end", [act] { act(); }, {.run = handler::inline_});
         w.call<void()>("end").call_then([](const result<void>&) {});
     }},
};

class engine_ends : public testing::TestWithParam<const char*> {
protected:
    static void run(const place& where, bool destroys) {
        SCOPED_TRACE(where.name);
        std::atomic<bool> begun{false}, done{false};
        action act;
        at_load = nullptr;
        world w(GetParam());
        std::unique_ptr<engine>& victim = where.at_server ? w.server : w.client;
        auto token = std::make_shared<int>(1);
        victim->define("token", [token] { return *token; });
        const std::weak_ptr<int> alive = std::exchange(token, nullptr);
        act = [&] {
            if (begun.exchange(true)) return;
            if (destroys) {
                victim.reset();
            } else {
                victim->stop();
                victim->stop();
            }
            done = true;
        };
        where.arrange(w, act);
        w.until([&] { return done.load(); });
        if (!destroys) {
            victim->stop();
            EXPECT_EQ(victim->procedure<int()>("one").on(peer()).start().wait(), errc::closed);
            victim.reset();
        }
        w.until([&] { return alive.expired(); });
        w.at_client->at_calling = w.at_client->at_called = nullptr;
        w.at_server->at_serving = w.at_server->at_served = nullptr;
        engine* const other = where.at_server ? w.client.get() : w.server.get();
        if (other == nullptr) return;
        auto good = other->spawn([other] {
            other->define("good", [] { return 7; });
            return other->procedure<int()>("good").on(other->address())();
        });
        w.until([&] { return good.ready(); });
        EXPECT_EQ(good.get(), 7);
    }
};

INSTANTIATE_TEST_SUITE_P(virtual_time, engine_ends, testing::Values("virtual"));
INSTANTIATE_TEST_SUITE_P(loop, engine_ends, testing::Values("loop://ends"));
INSTANTIATE_TEST_SUITE_P(shm, engine_ends, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_ends, testing::Values("tcp://127.0.0.1:0"));

TEST_P(engine_ends, it_may_be_stopped_in_any_function_that_it_calls) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "what this test shares with its handlers goes through sockets and shared "
                    "memory, which ThreadSanitizer does not follow";
#endif
    for (const place& each : places)
        run(each, false);
}

TEST_P(engine_ends, it_may_be_destroyed_in_any_function_that_it_calls) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "what this test shares with its handlers goes through sockets and shared "
                    "memory, which ThreadSanitizer does not follow";
#endif
    for (const place& each : places)
        run(each, true);
}

TEST(engine_ends_inside, a_callback_that_would_wait_for_another_engine_is_told_so) {
    engine server{"shm://"}, client{"shm://"};
    std::atomic<errc> told{errc::ok};
    client.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
        .on(server.address())
        .call_then(
            [&](const result<std::uint64_t>&) {
                told = error_of([&] { server.define("late", [] {}); }).code().code;
            },
            1);
    while (told == errc::ok)
        std::this_thread::yield();
    EXPECT_EQ(told, errc::invalid);
}

/// Handlers of `first` end `second`, which has a call in flight that ends when told; `first` is
/// stopped meanwhile, and abandons them.
struct two_that_end {
    std::atomic<bool> goes_on{false}, ends{false};
    std::shared_ptr<int> token = std::make_shared<int>(1);
    std::weak_ptr<int> alive = token;
    std::unique_ptr<engine> first =
        std::make_unique<engine>("shm://", engine_options{.drain = 0ms});
    std::unique_ptr<engine> second =
        std::make_unique<engine>("shm://", engine_options{.drain = 1h});
    engine client{"shm://"};
    std::atomic<bool> runs{false};

    void run(std::function<void()> end) {
        second->define("long", [this, token = std::move(token)] {
            runs = true;
            while (!goes_on)
                this_task::yield();
        });
        first->define("end", [this, end] {
            ends = true;
            end();
        });
        auto under_way = client.procedure<void()>("long").on(second->address()).start();
        while (!runs)
            std::this_thread::yield();
        const peer there = client.lookup(second->address());
        auto ending = client.procedure<void()>("end").on(first->address()).start();
        // Until `second` has been told to end.
        while (!ends ||
               client.procedure<void()>("none").on(there).try_call().code() != errc::unavailable)
            std::this_thread::yield();
        first.reset();
        goes_on = true;
        EXPECT_TRUE(under_way.wait().ok());
    }
};

TEST(engine_ends_inside, it_ends_also_when_the_ult_that_stops_it_never_goes_on) {
    two_that_end both;
    both.run([&] { both.second->stop(); });
    both.second->stop();
    both.second.reset();
    while (!both.alive.expired())  // The stopping code still holds a reference for a moment.
        std::this_thread::yield();
}

TEST(engine_ends_inside, it_ends_also_when_the_ult_that_destroys_it_never_goes_on) {
    two_that_end both;
    both.run([&] { delete both.second.release(); });
    while (!both.alive.expired())
        std::this_thread::yield();
}

TEST(engine_ends_inside, a_handler_that_has_destroyed_its_engine_may_wait_and_go_on) {
    auto server = std::make_unique<engine>("shm://", engine_options{.drain = 30s});
    engine client{"shm://"};
    std::atomic<bool> ended{false};
    auto token = std::make_shared<int>(1);
    const std::weak_ptr<int> alive = token;
    server->define("end", [&, token] {
        server.reset();
        EXPECT_FALSE(call_context::current().one_way());
        this_task::sleep_for(5ms);
        ended = true;
        return *token;
    });
    token.reset();
    EXPECT_FALSE(client.procedure<int()>("end").on(server->address()).try_call().ok());
    while (!alive.expired())
        std::this_thread::yield();
    EXPECT_TRUE(ended);
}

TEST(engine_ends_inside, what_an_answer_lends_once_its_engine_has_ended_is_not_kept) {
    auto server = std::make_unique<engine>("loop://lends");
    engine client{"loop://lends-client"};
    auto token = std::make_shared<int>(1);
    const std::weak_ptr<int> alive = token;
    server->define("lend", [token] { return lending{*token}; });
    token.reset();
    at_save = [&] { server->stop(); };
    EXPECT_FALSE(client.procedure<lending()>("lend").on(server->address()).try_call().ok());
    server.reset();
    at_save = nullptr;
    while (!alive.expired())
        std::this_thread::yield();
}

TEST(engine_ends_inside, an_answer_that_comes_too_late_is_out_of_the_way_of_later_ones) {
    auto server = std::make_unique<engine>("loop://late");
    engine client{"loop://late-client"};
    constexpr std::size_t enough = 100;  // So that some share a slot with the first.
    std::vector<responder<int>> kept;
    server->define("keep", [&](responder<int> answer) { kept.push_back(std::move(answer)); },
                   {.run = handler::inline_});
    server->define("end", [&] {
        while (kept.size() < enough)
            this_task::yield();
        server->stop();
        std::thread([&] { kept.clear(); }).join();
    });
    const peer there = client.lookup(server->address());
    auto ends = client.procedure<void()>("end").on(there).start();
    std::vector<future<int>> calls;
    for (std::size_t i = 0; i < enough; ++i)
        calls.push_back(client.procedure<int()>("keep").on(there).start());
    EXPECT_FALSE(ends.wait().ok());
    server.reset();
}

TEST(engine_ends_inside, one_that_a_callback_destroys_does_not_wait_for_what_never_runs) {
    auto ended = std::make_unique<engine>("loop://ended", engine_options{.drain = 1h});
    engine other{"loop://other"};
    auto token = std::make_shared<int>(1);
    const std::weak_ptr<int> alive = token;
    ended->define("token", [token] { return *token; });
    token.reset();
    std::atomic<bool> waits{false};
    event never;
    post(ended->pool(), [&] {
        waits = true;
        never.wait();
    });
    while (!waits)
        std::this_thread::yield();
    ended->stop();
    never.set();  // Too late: its stream has ended.
    other.procedure<std::uint64_t(std::uint64_t)>("amalgam.ping")
        .on(other.address())
        .call_then([&](const result<std::uint64_t>&) { ended.reset(); }, 1);
    while (!alive.expired())
        std::this_thread::yield();
}

}  // namespace
}  // namespace amalgam
