#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/interceptor.hpp>
#include <amalgam/tasks/event.hpp>

#include "conformance/child_process.hpp"
#include "core/returning_child_testing.hpp"

// Servers and clients as processes that get killed. A forked child that exits with 7 has only one
// of several threads, which confuses leak checks.
extern "C" const char* __lsan_default_suppressions() {
    return "leak:__cxa_thread_atexit_impl\n";
}

namespace amalgam {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;
using core_testing::child_that_returns;

class engine_processes : public testing::TestWithParam<const char*> {
protected:
    /// URI of an engine that only calls.
    const char* calls() const {
        return std::string_view(GetParam()).starts_with("shm") ? "shm://" : "tcp://";
    }
};

INSTANTIATE_TEST_SUITE_P(shm, engine_processes, testing::Values("shm://"));
INSTANTIATE_TEST_SUITE_P(tcp, engine_processes, testing::Values("tcp://127.0.0.1:0"));

/// Serves until the parent is gone or sends something. Sends its address first.
int serve(channel& parent, const std::string& uri) {
    event never;
    engine server{uri, {.drain = 10ms}};
    std::atomic<int> canceled{0};
    server.define("echo", [](std::string text) { return text; });
    server.define("wait", [&](int) { never.wait(); });
    server.define("note", [](int) {});
    server.define("watch", [&] {
        try {
            for (;;)
                this_task::sleep_for(1ms);
        } catch (const error&) {
            canceled += call_context::current().canceled() ? 1 : 0;
        }
    });
    server.define("canceled", [&] { return canceled.load(); });
    parent.say(server.address());
    (void)parent.hear();
    return 0;
}

/// A server that starts when told where. Create it before anything that runs ULTs: ThreadSanitizer
/// takes their stacks for threads, and then a forked process cannot start any.
child_process standby() {
    return child_process([](channel& parent) { return serve(parent, parent.hear()); });
}

child_process server_at(const std::string& uri) {
    child_process server = standby();
    server.line().say(uri);
    return server;
}

bool is_loss(errc code) {
    return code == errc::disconnected || code == errc::unreachable;
}

TEST_P(engine_processes, a_server_in_another_process_answers) {
    child_process server = server_at(GetParam());
    const std::string address = server.line().hear();
    engine client{calls()};
    auto echo = client.procedure<std::string(std::string)>("echo").on(address);
    for (const std::size_t bytes : {0u, 10u, 1000u, 100'000u, 4'000'000u}) {
        const std::string text(bytes, 'e');
        EXPECT_EQ(echo(text), text);
    }
    server.line().say("end");
    EXPECT_EQ(server.join(), 0);
}

TEST_P(engine_processes, a_killed_server_ends_every_pending_call_once) {
    child_process server = server_at(GetParam());
    const std::string address = server.line().hear();
    engine client{calls()};
    const peer there = client.lookup(address);
    auto echo = client.procedure<std::string(std::string)>("echo").on(there);
    auto wait = client.procedure<void(int)>("wait").on(there);
    EXPECT_EQ(echo("x"), "x");

    std::vector<future<void>> futures;
    for (int i = 0; i < 100; ++i)
        futures.push_back(wait.start(i));
    std::atomic<int> ended{0};
    std::vector<future<void>> ults;
    for (int i = 0; i < 50; ++i) {
        ults.push_back(client.spawn([&] {
            EXPECT_TRUE(is_loss(wait.try_call(1).code().code));
            ++ended;
        }));
    }
    std::thread plain([&] {
        EXPECT_TRUE(is_loss(wait.try_call(1).code().code));
        ++ended;
    });
    EXPECT_EQ(echo("still there"), "still there");
    server.kill();
    for (auto& each : futures)
        EXPECT_TRUE(is_loss(each.wait().code));
    for (auto& each : ults)
        each.get();
    plain.join();
    EXPECT_EQ(ended, 51);
    EXPECT_TRUE(is_loss(echo.try_call("gone").code().code));
}

TEST_P(engine_processes, a_restarted_server_is_reached_by_a_new_lookup) {
    child_process first = server_at(GetParam());
    child_process second = standby();
    const std::string address = first.line().hear();
    engine client{calls()};
    auto echo = client.procedure<std::string(std::string)>("echo");
    const peer old = client.lookup(address);
    EXPECT_EQ(echo.on(old)("one"), "one");
    first.kill();
    EXPECT_TRUE(is_loss(echo.on(old).try_call("two").code().code));
    second.line().say(address);
    EXPECT_EQ(second.line().hear(), address);
    EXPECT_TRUE(is_loss(echo.on(old).try_call("three").code().code));
    EXPECT_EQ(echo.on(client.lookup(address))("four"), "four");
}

TEST_P(engine_processes, a_killed_client_shows_at_the_handler_and_harms_nobody_else) {
    child_process server = server_at(GetParam());
    const std::string address = server.line().hear();
    child_process other([&](channel& parent) {
        engine client{calls()};
        const peer there = client.lookup(address);
        auto watch = client.procedure<void()>("watch").on(there);
        std::vector<future<void>> calls;
        for (int i = 0; i < 10; ++i)
            calls.push_back(watch.start());
        client.procedure<std::string(std::string)>("echo").on(there)("they have begun");
        parent.say("ready");
        (void)parent.hear();
        return 0;
    });
    ASSERT_EQ(other.line().hear(), "ready");
    engine client{calls()};
    const peer there = client.lookup(address);
    other.kill();
    auto canceled = client.procedure<int()>("canceled").on(there);
    while (canceled() != 10)
        std::this_thread::yield();
    EXPECT_EQ(client.procedure<std::string(std::string)>("echo").on(there)("well"), "well");
}

TEST_P(engine_processes, whenever_a_server_is_killed_every_call_ends_once) {
    seeded_random random(7);
    std::vector<child_process> servers;
    for (int round = 0; round < 12; ++round)
        servers.push_back(standby());
    for (child_process& server : servers) {
        server.line().say(GetParam());
        const std::string address = server.line().hear();
        engine client{calls(), {.drain = 0ms}};
        const peer there = client.lookup(address);
        auto echo = client.procedure<std::string(std::string)>("echo").on(there);
        auto note = client.procedure<void(int)>("note").on(there);
        std::atomic<int> begun{0}, ended{0}, wrong{0};
        std::atomic<bool> lost{false};
        std::vector<future<void>> callers;
        for (std::size_t i = 0; i < 16; ++i) {
            callers.push_back(client.spawn([&, i] {
                const std::string text(i * i * i * 40, 'k');
                while (!lost) {
                    ++begun;
                    future<std::string> call = echo.start(text);
                    const status how = call.wait();
                    ++ended;
                    if (is_loss(how.code)) {
                        lost = true;
                    } else if (!how.ok() || call.get() != text) {
                        ++wrong;
                    }
                    try {
                        note.post(1);
                    } catch (const error& why) {
                        wrong += why.code() == errc::disconnected ? 0 : 1;
                    }
                }
            }));
        }
        const auto calls_before = static_cast<int>(random.below(400));
        while (begun < calls_before)
            std::this_thread::yield();
        server.kill();
        for (auto& each : callers)
            each.get();
        EXPECT_EQ(begun, ended);
        EXPECT_EQ(wrong, 0);
    }
}

/// Result of `body` in a child forked while engines run.
template <typename Body>
int status_of_fork(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        int code = 99;
        try {
            code = body();
        } catch (...) {
            code = 98;
        }
        ::_exit(code);
    }
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

TEST_P(engine_processes, a_forked_child_is_refused_what_it_asks_of_its_parents_engine) {
    auto server = std::make_unique<engine>(GetParam());
    engine client{calls()};
    server->define("one", [] { return 1; });
    const auto one = client.procedure<int()>("one").on(server->address());
    ASSERT_EQ(one(), 1);
    const auto refused = [](const auto& how) {
        return how.code() == errc::closed &&
               how.sentence().find("after fork()") != std::string::npos;
    };
    EXPECT_EQ(status_of_fork([&] { return refused(one.within(1h).try_call()) ? 0 : 1; }), 0);
    EXPECT_EQ(status_of_fork([&] {
                  try {
                      client.spawn([] { return 1; }).get();
                  } catch (const error& why) {
                      return why.code() == errc::closed ? 0 : 1;
                  }
                  return 2;
              }),
              0);
    EXPECT_EQ(status_of_fork([&] {
                  client.stop();
                  server.reset();
                  return 0;
              }),
              0);
    EXPECT_EQ(one(), 1) << "the parent's engines are what they were";
}

TEST_P(engine_processes, a_forked_child_is_refused_to_send_on_its_parents_stream) {
    engine server{GetParam()}, client{calls()};
    server.define("sum", [](stream_reader<int>& in) {
        int sum = 0;
        for (int each : in)
            sum += each;
        return sum;
    });
    auto up = client.procedure<int(streaming<int>)>("sum").on(server.address()).open();
    EXPECT_TRUE(up.send(1));
    EXPECT_EQ(status_of_fork([&] {
                  for (int i = 0; i < 200; ++i) {  // More than there is credit for.
                      try {
                          up.send(100);
                          return 1;
                      } catch (const error& why) {
                          if (why.code() != errc::closed) return 2;
                      }
                  }
                  return 0;
              }),
              0);
    EXPECT_TRUE(up.send(2));
    EXPECT_EQ(up.get(), 3) << "the parent's stream is what it was";
}

/// A child forked during a call that `act(child)` makes neither answers nor goes on: the parent
/// does.
template <typename Act>
void expect_parent_goes_on(const char* where, engine_options options, child_that_returns& child,
                           handler run, bool in_handler, Act act) {
    engine server{where};
    engine client{std::string_view(where).starts_with("shm") ? "shm://" : "tcp://",
                  std::move(options)};
    server.define("add_one",
                  [&](int number) {
                      if (in_handler && !child.forked()) child.fork();
                      return number + 1;
                  },
                  {.run = run});
    const auto add_one = client.procedure<int(int)>("add_one").on(server.address());
    EXPECT_EQ(act(add_one), 2);
    EXPECT_TRUE(child.was_ended());
    EXPECT_EQ(add_one(7), 8) << "the parent's engines are what they were";
}

constexpr auto call = [](const auto& what) { return what(1); };

TEST_P(engine_processes, a_child_that_returns_from_an_inline_handler_is_ended) {
    child_that_returns child;
    expect_parent_goes_on(GetParam(), {}, child, handler::inline_, true, call);
}

TEST_P(engine_processes, a_child_that_returns_from_a_handler_in_a_ult_is_ended) {
    child_that_returns child;
    expect_parent_goes_on(GetParam(), {}, child, handler::ult, true, call);
}

TEST_P(engine_processes, a_child_that_returns_from_a_continuation_is_ended) {
    child_that_returns child;
    expect_parent_goes_on(GetParam(), {}, child, handler::ult, false, [&](const auto& what) {
        promise<int> brings;
        future<int> later = brings.get_future();
        what.call_then(
            [&child, brings = std::move(brings)](result<int> got) mutable {
                child.fork();
                brings.set_value(got.value());
            },
            1);
        return later.get();
    });
}

TEST_P(engine_processes, a_child_that_returns_from_an_interceptor_is_ended) {
    struct forks_once final : interceptor {
        explicit forks_once(child_that_returns& whom) : child(whom) {}
        void called(std::string_view, const peer&, status, clock::duration) override {
            if (!child.forked()) child.fork();
        }
        child_that_returns& child;
    };
    child_that_returns child;
    expect_parent_goes_on(GetParam(), {.interceptors = {std::make_shared<forks_once>(child)}},
                          child, handler::ult, false, call);
}

TEST_P(engine_processes, a_child_that_returns_from_the_end_of_what_a_post_held_is_ended) {
    // Reports if the child reaches the next destructor.
    struct forks_at_its_end {
        forks_at_its_end(child_that_returns& whom, pid_t of) : child(whom), parent(of) {}
        ~forks_at_its_end() {
            if (::getpid() != parent) {
                static_cast<void>(!::write(STDERR_FILENO, "another\n", 8));
            } else if (!this_task::in_ult() && !child.forked()) {
                child.fork();
            }
        }
        child_that_returns& child;
        const pid_t parent;
        const std::vector<std::byte> bytes = std::vector<std::byte>(30000);
    };
    child_that_returns child;
    std::atomic<int> came{0};
    engine server{GetParam()}, client{calls()};
    std::promise<void> stands, go_on;
    server.define("stand",
                  [&] {
                      stands.set_value();
                      go_on.get_future().wait();
                  },
                  {.run = handler::inline_});
    server.define("take", [&](const_bytes) { ++came; });
    const peer there = client.lookup(server.address());
    auto standing = client.procedure<void()>("stand").on(there).start();
    stands.get_future().wait();
    // Enough that most wait for the server, and leave together.
    const auto take = client.procedure<void(const_bytes)>("take").on(there);
    constexpr int all = 400;
    client.run([&] {
        for (int i = 0; i < all; ++i) {
            const auto held = std::make_shared<forks_at_its_end>(child, ::getpid());
            take.post_held(held, held->bytes);
        }
    });
    go_on.set_value();
    standing.get();
    while (came != all || !child.forked())
        std::this_thread::yield();
    EXPECT_TRUE(child.was_ended());
}

TEST_P(engine_processes, a_forked_child_exits_although_a_static_engine_runs) {
    static engine at_exit{GetParam()};
    const pid_t child = ::fork();
    if (child == 0) std::exit(7);
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

TEST_P(engine_processes, a_ult_of_a_static_engine_may_end_the_process) {
    const pid_t child = ::fork();
    if (child == 0) {
        static engine here{GetParam()};
        here.run([] { std::exit(7); });
    }
    int how = 0;
    EXPECT_EQ(::waitpid(child, &how, 0), child);
    EXPECT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 7);
}

}  // namespace
}  // namespace amalgam
