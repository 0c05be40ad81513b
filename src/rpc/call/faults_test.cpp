#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>

#include <amalgam/core/log.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/responder.hpp>
#include <amalgam/rpc/stream_reader.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>
#include <amalgam/tasks/inspect.hpp>

#include "conformance/slow_build.hpp"
#include "memory/memory.hpp"
#include "rpc/core/core.hpp"
#include "rpc/loop_pair.hpp"

// Every allocation of a call, on either side, fails once: the first, the second, the third …, until
// a run has none left to fail. Whichever fails, the call ends, although it has no deadline; nothing
// of it remains; and the two engines can still communicate.

namespace amalgam {
namespace {

using namespace std::literals;

const std::string small_text = "a text that is too long to be kept inside of a string";
const std::string large_text(300'000, 'x');  // Too large for a message.

/// Two engines driven by one thread, whose allocations fail.
class driven_pair {
public:
    explicit driven_pair(const std::string& where)
        : driven_pair({where == "loop://" ? "loop://a" : where},
                      {where == "loop://" ? "loop://b" : where}) {}
    driven_pair(const std::vector<std::string>& of_server,
                const std::vector<std::string>& of_client)
        : server(of_server, by_caller()), client(of_client, by_caller()) {}

    /// Until idle, or `ended`.
    template <typename Ended>
    void settle(Ended ended) {
        constexpr int patience = 400;
        constexpr int moment_ms = 1;
        for (int idle = 0; idle < patience && !ended();) {
            std::array<pollfd, 2> wakes{
                {{server.wait_handle(), POLLIN, 0}, {client.wait_handle(), POLLIN, 0}}};
            const bool moved = server.progress() + client.progress() != 0;
            idle = moved || ::poll(wakes.data(), wakes.size(), moment_ms) > 0 ? 0 : idle + 1;
        }
    }

    engine server, client;

private:
    static engine_options by_caller() {
        engine_options how;
        how.progress.by = progress_by::caller;
        return how;
    }
};

void serve_all(engine& server) {
    using text = std::string;
    server.define("small", [](text in) { return in; });
    server.define("inline", [](text in) { return in; }, {.run = handler::inline_});
    server.define("late", [](responder<text> answer, text in) { answer(in); });
    server.define("length", [](text in) { return in.size(); });
    server.define("large", [] { return large_text; });
    server.define("large inline", [] { return large_text; }, {.run = handler::inline_});
    server.define("refusing", []() -> int { throw error(errc::denied, small_text); });
    server.define("values", [](stream_writer<text>& out, int count) {
        for (int i = 0; i < count; ++i)
            out(small_text);
    });
    server.define("large values", [](stream_writer<text>& out) {
        for (int i = 0; i < 2; ++i)
            out(large_text);
    });
    server.define("read", [](stream_reader<text>& in) {
        std::size_t bytes = 0;
        for (const text& each : in)
            bytes += each.size();
        return bytes;
    });
    server.define("both", [](stream_reader<text>& in, stream_writer<text>& out) {
        for (const text& each : in)
            out(each);
    });
}

template <typename R, typename... A>
auto proc(engine& client, const peer& there, const char* name) {
    return client.procedure<R(A...)>(name).on(there);
}

struct way_to_call {
    const char* name;
    void (*call)(engine& client, const peer& there);
};

template <typename T>
std::size_t count_of(streamed<T> values) {
    std::size_t count = 0;
    while (values.next())
        ++count;
    return count;
}

const way_to_call all_ways[] = {
    {"small",
     [](engine& c, const peer& to) {
         EXPECT_EQ((proc<std::string, std::string>(c, to, "small")(small_text)), small_text);
     }},
    {"inline",
     [](engine& c, const peer& to) {
         EXPECT_EQ((proc<std::string, std::string>(c, to, "inline")(small_text)), small_text);
     }},
    {"late",
     [](engine& c, const peer& to) {
         EXPECT_EQ((proc<std::string, std::string>(c, to, "late")(small_text)), small_text);
     }},
    {"future",
     [](engine& c, const peer& to) {
         auto later = proc<std::string, std::string>(c, to, "small").start(small_text);
         EXPECT_EQ(later.get(), small_text);
     }},
    {"deadline",
     [](engine& c, const peer& to) {
         auto call = proc<std::string, std::string>(c, to, "small");
         EXPECT_EQ(call.within(1h)(small_text), small_text);
     }},
    {"large argument",
     [](engine& c, const peer& to) {
         EXPECT_EQ((proc<std::size_t, std::string>(c, to, "length")(large_text)),
                   large_text.size());
     }},
    {"large result",
     [](engine& c, const peer& to) {
         EXPECT_EQ(proc<std::string>(c, to, "large")().size(), large_text.size());
     }},
    {"large inline result",
     [](engine& c, const peer& to) {
         EXPECT_EQ(proc<std::string>(c, to, "large inline")().size(), large_text.size());
     }},
    {"refused", [](engine& c, const peer& to) { (void)proc<int>(c, to, "refusing").try_call(); }},
    {"unknown",
     [](engine& c, const peer& to) {
         (void)proc<int>(c, to, "nobody has defined this name here").try_call();
     }},
    {"one way",
     [](engine& c, const peer& to) {
         proc<std::string, std::string>(c, to, "small").post(small_text);
     }},
    {"stream",
     [](engine& c, const peer& to) {
         auto call = proc<streamed<std::string>, int>(c, to, "values");
         EXPECT_EQ(count_of(call.window(2)(9)), 9u);
     }},
    {"stream of large values",
     [](engine& c, const peer& to) {
         EXPECT_EQ(count_of(proc<streamed<std::string>>(c, to, "large values")()), 2u);
     }},
    {"stream that is left",
     [](engine& c, const peer& to) {
         auto values = proc<streamed<std::string>, int>(c, to, "values").window(2)(9);
         values.next();
     }},
    {"values for the handler",
     [](engine& c, const peer& to) {
         auto up = proc<std::size_t, streaming<std::string>>(c, to, "read").open();
         for (int i = 0; i < 9 && up.send(small_text); ++i) {
         }
         EXPECT_EQ(up.get(), 9 * small_text.size());
     }},
    {"large values for the handler",
     [](engine& c, const peer& to) {
         auto up = proc<std::size_t, streaming<std::string>>(c, to, "read").open();
         up.send(large_text);
         up.send(large_text);
         EXPECT_EQ(up.get(), 2 * large_text.size());
     }},
    {"values for the handler that are left",
     [](engine& c, const peer& to) {
         auto up = proc<std::size_t, streaming<std::string>>(c, to, "read").open();
         up.send(small_text);
     }},
    {"values both ways",
     [](engine& c, const peer& to) {
         auto both = proc<streamed<std::string>, streaming<std::string>>(c, to, "both").open();
         for (int i = 0; i < 3 && both.send(small_text); ++i)
             EXPECT_EQ(both.next(), small_text);
         both.finish();
         EXPECT_EQ(both.next(), std::nullopt);
     }},
};

void expect_at_rest(engine& which, const char* who) {
    detail::engine_core& core = which.core();
    EXPECT_EQ(core.caller().pending(), 0u) << who;
    EXPECT_EQ(core.server().running(), 0u) << who;
    EXPECT_EQ(core.loans().size().value(), 0u) << who;
    EXPECT_EQ(core.value_streams().open(), 0u) << who;
    EXPECT_EQ(core.value_streams().reserved(), 0u) << who;
    EXPECT_EQ(core.outbox().queued(), 0u) << who;
    EXPECT_TRUE(core.transfers().is_at_rest()) << who;
}

/// False: allocation number `n` is not reached.
bool fails_and_ends(const std::string& where, const way_to_call& way, std::size_t n, bool to_self) {
    driven_pair pair(where);
    engine& server = to_self ? pair.client : pair.server;
    serve_all(server);
    const std::string address = server.address();
    bool ended = false;
    bool failed = false;
    const auto has_ended = [&ended] { return ended; };
    const auto run = [&](void (*call)(engine&, const peer&)) {
        ended = false;
        return pair.client.spawn([&, call] {
            try {
                call(pair.client, pair.client.lookup(address));
            } catch (const error&) {
                failed = true;
            } catch (const std::bad_alloc&) {
                failed = true;
            }
            ended = true;
        });
    };
    bool struck = false;
    {
        const auto call = run(way.call);
        const memory::failing failing(n);
        pair.settle(has_ended);
        struck = memory::failing::struck();
    }
    pair.settle(has_ended);
    EXPECT_TRUE(ended) << "the call has not ended";
    if (!ended) return struck;
    EXPECT_TRUE(struck || !failed) << "a call fails that has all the memory it wants";
    // Whether or not the connection ended, everything in flight has completed.
    const auto after = run([](engine& c, const peer& to) {
        EXPECT_EQ((proc<std::string, std::string>(c, to, "inline").within(1h)("again")), "again");
    });
    pair.settle(has_ended);
    EXPECT_TRUE(ended) << "the engines do not talk any more";
    const auto at_rest = [&] {
        for (engine* each : {&pair.server, &pair.client}) {
            if (each->core().server().running() != 0 || each->core().loans().size().value() != 0)
                return false;
        }
        return true;
    };
    pair.settle(at_rest);
    expect_at_rest(pair.server, "server");
    expect_at_rest(pair.client, "client");
    return struck;
}

class call_faults : public testing::TestWithParam<std::pair<const char*, bool>> {};
INSTANTIATE_TEST_SUITE_P(loop, call_faults, testing::Values(std::pair{"loop://", false}));
INSTANTIATE_TEST_SUITE_P(self, call_faults, testing::Values(std::pair{"tcp://127.0.0.1:0", true}));
INSTANTIATE_TEST_SUITE_P(shm, call_faults, testing::Values(std::pair{"shm://", false}));
INSTANTIATE_TEST_SUITE_P(tcp, call_faults, testing::Values(std::pair{"tcp://127.0.0.1:0", false}));

TEST_P(call_faults, every_call_ends_and_nothing_is_kept_for_it_whatever_allocation_fails) {
    const auto [where, to_self] = GetParam();
    for (const way_to_call& way : all_ways) {
        std::size_t n = 1;
        while (fails_and_ends(where, way, n, to_self)) {
            ASSERT_FALSE(HasFailure()) << way.name << ": allocation " << n;
            n += conformance::slow_build ? 3 : 1;
        }
        ASSERT_FALSE(HasFailure()) << way.name << ": allocation " << n;
        EXPECT_GT(n, 3u) << way.name;
    }
}

TEST(one_way_faults, what_another_thread_posted_and_no_memory_is_left_to_send_is_logged) {
    std::vector<std::string> lines;
    default_logger().set_sink([&](const log_record& line) {
        const memory::spared not_counted;
        lines.push_back(to_text(line));
    });
    std::string address;
    std::uint64_t lost = 0;
    for (std::size_t n = 1; lost == 0 && n < 100; ++n) {
        driven_pair pair("tcp://127.0.0.1:0");
        address = pair.server.address();
        pair.server.define("note", [](std::string) {});
        const auto note = pair.client.procedure<void(std::string)>("note").on(address);
        note.post("first");
        pair.settle([] { return false; });
        const std::size_t most =
            detail::most_argument_bytes(pair.client.core(), pair.client.lookup(address));
        std::thread([&] { note.post(std::string(most - 100, 'x')); }).join();
        {
            const memory::failing failing(n);
            pair.client.progress();
        }
        lost = counters_of(pair.client).at("rpc.one_ways_lost");
    }
    default_logger().set_sink({});
    EXPECT_EQ(lost, 1u);
    const auto told = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
        return line.find("a one-way call is lost: out of memory") != std::string::npos;
    });
    ASSERT_NE(told, lines.end());
    EXPECT_NE(told->find("procedure=note"), std::string::npos) << *told;
    EXPECT_NE(told->find("to=" + address), std::string::npos) << *told;
}

std::size_t ults_named(const char* name) {
    const std::vector<ult_info> all = list_ults();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const ult_info& each) { return each.name == name; }));
}

TEST(lookup_faults, a_lookup_by_addresses_ends_whole_whatever_allocation_fails) {
    std::size_t n = 0;
    for (bool struck = true; struck;) {
        ++n;
        driven_pair pair({"loop://a", "loop://c"}, {"loop://b"});
        const std::vector<std::string> both = pair.server.addresses();
        bool ended = false;
        const auto asked = pair.client.spawn([&] {
            try {
                (void)pair.client.lookup(both);
            } catch (const std::bad_alloc&) {
            } catch (const error&) {
            }
            ended = true;
        });
        const auto is_over = [&] { return ended && ults_named("rpc lookup") == 0; };
        {
            const memory::failing failing(n);
            pair.settle([&] { return ended; });
            struck = memory::failing::struck();
        }
        pair.settle(is_over);
        ASSERT_TRUE(ended) << "allocation " << n;
        ASSERT_EQ(ults_named("rpc lookup"), 0u) << "allocation " << n;
    }
    EXPECT_GT(n, 10u);
}

TEST(undefine_faults, a_procedure_is_gone_or_still_there_whatever_allocation_fails) {
    for (std::size_t n = 1;; ++n) {
        loop_pair two;
        for (const char* const name : {"a", "b", "c"})
            two.server.define(name, [] { return 1; });
        bool known = false;
        bool struck = false;
        {
            const memory::failing failing(n);
            try {
                known = two.server.undefine("b");
            } catch (const std::bad_alloc&) {
            }
            struck = memory::failing::struck();
        }
        const peer there = two.there();
        two.in_client([&] {
            const auto try_b = two.client.procedure<int()>("b").on(there).try_call();
            EXPECT_EQ(try_b.code(), known ? errc::not_found : errc::ok);
            EXPECT_EQ(two.client.procedure<int()>("a").on(there)(), 1);
            EXPECT_EQ(two.client.procedure<int()>("c").on(there)(), 1);
        });
        EXPECT_EQ(two.server.undefine("b"), !known);
        if (!struck) break;
    }
}

TEST(undefine_faults, a_procedure_is_defined_or_not_whatever_allocation_fails) {
    for (std::size_t n = 1;; ++n) {
        loop_pair two;
        two.server.define("a", [] { return 1; });
        bool defined = false;
        bool struck = false;
        {
            const memory::failing failing(n);
            try {
                two.server.define("b", [] { return 2; });
                defined = true;
            } catch (const std::bad_alloc&) {
            } catch (const error&) {
            }
            struck = memory::failing::struck();
        }
        const peer there = two.there();
        two.in_client([&] {
            EXPECT_EQ(two.client.procedure<int()>("a").on(there)(), 1);
            const auto b = two.client.procedure<int()>("b").on(there).try_call();
            EXPECT_EQ(b.code(), defined ? errc::ok : errc::not_found);
        });
        if (!defined) two.server.define("b", [] { return 2; });
        if (!struck) break;
    }
}

}  // namespace
}  // namespace amalgam
