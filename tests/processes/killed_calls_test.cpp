#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/semaphore.hpp>

#include "conformance/child_process.hpp"
#include "conformance/slow_build.hpp"
#include "processes/lab_keys.hpp"

// Either side of every form of call, killed at random moments, again and again: each call ends
// exactly once, and leaves nothing behind.
namespace amalgam {
namespace {

using namespace std::chrono_literals;
using conformance::channel;
using conformance::child_process;

constexpr int rounds = conformance::slow_build ? 25 : 250;

const std::string large(300'000, 'l');

/// Procedures called in either direction. Holds responders for late answers.
struct called {
    explicit called(engine& where) {
        where.define("echo", [](std::string text) { return text; });
        where.define("never", [this] { never.wait(); });
        where.define("hold", [this](responder<int> answer) { held = std::move(answer); });
        where.define("count", [](stream_writer<int>& out) {
            for (int i = 0;; ++i)
                out(i);
        });
        where.define("add", [](stream_reader<std::string>& in) {
            std::size_t bytes = 0;
            for (const std::string& each : in)
                bytes += each.size();
            return bytes;
        });
        where.define("back", [](stream_reader<std::string>& in, stream_writer<std::string>& out) {
            for (const std::string& each : in)
                out(each);
        });
        where.define("note", [](std::string) {});
    }
    event never;
    std::optional<responder<int>> held;
};

/// Calls in every form until the far side is gone; returns how many did not end exactly once.
class caller {
public:
    explicit caller(engine& where) : where_(where) {}

    int call_until_it_is_gone(const std::string& address) {
        const peer there = where_.lookup(address);
        begun_ = ended_ = twice_ = 0;
        auto echo = where_.procedure<std::string(std::string)>("echo").on(there);
        std::vector<future<void>> waits;
        std::vector<future<int>> holds;
        for (int i = 0; i < 8; ++i) {
            waits.push_back(where_.procedure<void()>("never").on(there).start());
            holds.push_back(where_.procedure<int()>("hold").on(there).start());
        }
        std::vector<future<void>> ults;
        for (int i = 0; i < 4; ++i) {
            ults.push_back(
                where_.spawn([&, i] { repeat([&] { return echo.try_call(text(i)); }); }));
            ults.push_back(where_.spawn([&] {
                try {
                    for (int each : where_.procedure<streamed<int>()>("count").on(there)())
                        last_ = each;
                } catch (const error&) {
                }
            }));
        }
        ults.push_back(where_.spawn([&] {
            const auto add = where_.procedure<std::size_t(streaming<std::string>)>("add");
            auto up = add.on(there).open();
            for (int i = 0; up.send(text(i)); ++i) {
            }
            twice_ += up.result().wait().ok();
        }));
        ults.push_back(where_.spawn([&] {
            const auto back =
                where_.procedure<streamed<std::string>(streaming<std::string>)>("back");
            auto both = back.on(there).open();
            try {
                for (int i = 0; both.send(text(i)) && both.next(); ++i) {
                }
            } catch (const error&) {
            }
        }));
        while (alive()) {
            tell(echo);
            try {
                where_.procedure<void(std::string)>("note").on(there).post(text(begun_));
            } catch (const error&) {
                break;
            }
            if (!echo.try_call("x")) break;
        }
        for (auto& each : ults)
            each.get();
        int open = 0;
        for (auto& each : waits)
            open += each.wait().ok();
        for (auto& each : holds)
            (void)each.wait();
        for (int i = begun_; i > 0; --i)
            told_.acquire();
        return open + twice_;
    }

private:
    bool alive() const { return ended_.load() < 100'000; }
    static std::string text(int n) { return n % 3 == 0 ? large : std::string(1, 'x'); }
    template <typename Call>
    void repeat(Call call) {
        while (call()) {
        }
    }
    void tell(const bound_procedure<std::string(std::string)>& echo) {
        ++begun_;
        auto done = std::make_shared<std::atomic<bool>>(false);
        try {
            echo.call_then(
                [this, done](result<std::string>) {
                    if (done->exchange(true)) ++twice_;
                    ++ended_;
                    told_.release();
                },
                text(begun_));
        } catch (const error&) {
            --begun_;
        }
    }

    engine& where_;
    int begun_ = 0;
    std::atomic<int> ended_{0};
    std::atomic<int> twice_{0};
    int last_ = 0;
    semaphore told_{0};
};

std::uint64_t value_of(engine& which, std::string_view name) {
    for (const counter_value& each : which.counters().snapshot()) {
        if (each.name == name) return each.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
}

/// Starts processes and kills them after a random time, since a process that has run ULTs should
/// not fork. Receives "uri", or "uri address" for a client; sends the server's address.
int start_and_kill(channel& parent) {
    seeded_random chance(20261122);
    for (;;) {
        const std::string what = parent.hear();
        if (what == "end") return 0;
        const std::size_t space = what.find(' ');
        const std::string uri = what.substr(0, space);
        child_process victim([&](channel& me) {
            engine here{uri, {.drain = 0ms}};
            const called serves(here);
            if (space != std::string::npos) {
                me.say("begun");
                caller(here).call_until_it_is_gone(what.substr(space + 1));
            } else {
                me.say(here.address());
            }
            (void)me.hear();
            return 0;
        });
        parent.say(victim.line().hear());
        // Within calls, too, to which a handshake takes some milliseconds.
        const bool encrypts = uri.find("+tls:") != std::string::npos;
        std::this_thread::sleep_for(
            std::chrono::microseconds(chance.below(encrypts ? 30'000 : 3000)));
        victim.kill();
        parent.say("killed");
    }
}

/// For each scheme.
class killed_calls : public testing::TestWithParam<const char*> {
protected:
    child_process killer{start_and_kill};
    const processes::lab_keys keys{GetParam()};

    // Keys and handshakes take ten times as long as the rest.
    int count() const { return keys.encrypts() ? rounds / 10 : rounds; }
    std::string at_server() const {
        return keys.uri(GetParam() == std::string_view("shm") ? "" : "127.0.0.1:0", "server");
    }
    std::string at_client() const { return keys.uri("", "client"); }

    void SetUp() override {
        keys.add("server", {"127.0.0.1"});
        keys.add("client", {});
    }
    void TearDown() override {
        killer.line().say("end");
        EXPECT_EQ(killer.join(), 0);
    }
};

INSTANTIATE_TEST_SUITE_P(shm, killed_calls, testing::Values("shm"));
INSTANTIATE_TEST_SUITE_P(tcp, killed_calls, testing::Values("tcp"));
INSTANTIATE_TEST_SUITE_P(tcp_tls, killed_calls, testing::Values("tcp+tls"));

TEST_P(killed_calls, of_a_server_end_once_at_the_client) {
    engine client{at_client()};
    caller calls(client);
    for (int i = 0; i < count(); ++i) {
        killer.line().say(at_server());
        const std::string address = killer.line().hear();
        ASSERT_EQ(calls.call_until_it_is_gone(address), 0) << "round " << i;
        ASSERT_EQ(killer.line().hear(), "killed");
    }
}

TEST_P(killed_calls, of_a_client_leave_nothing_at_the_server) {
    engine server{at_server()};
    called serves(server);
    for (int i = 0; i < count(); ++i) {
        event lost;
        const auto watch = server.on_peer_lost([&](const peer&, status) { lost.set(); });
        killer.line().say(at_client() + " " + server.address());
        ASSERT_EQ(killer.line().hear(), "begun");
        ASSERT_EQ(killer.line().hear(), "killed");
        // A client killed before its first call is unknown here, and leaves nothing behind.
        while (!lost.wait_for(10ms) && value_of(server, "rpc.running") != 0) {
        }
        server.run([&] { serves.held.reset(); });
    }
    while (value_of(server, "rpc.running") != 0)
        std::this_thread::yield();
    EXPECT_EQ(value_of(server, "rpc.lent"), 0u);
    EXPECT_EQ(value_of(server, "rpc.reader_bytes"), 0u);
}

}  // namespace
}  // namespace amalgam
