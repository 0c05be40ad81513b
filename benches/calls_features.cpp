// The rarer forms of calls, and what an engine does beside calls, over shared memory.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <amalgam/rpc.hpp>

#include "calls.hpp"
#include "pair_in_one_thread.hpp"

namespace amalgam::bench {

namespace {

using std::chrono_literals::operator""min;

constexpr const char* uri = "shm://";

/// Per `one()` of a ULT of the client, of which several run.
template <typename One>
double in_callers(const length& l, pair_in_one_thread& both, One one) {
    return l.nanoseconds_each(calls, [&] {
        both.in_callers([&] {
            for (std::size_t i = 0; i < calls_each; ++i)
                one(i);
        });
    });
}

/// Per operation of a `block()` that does all of them in one ULT of `which`.
template <typename Block>
double in_one_ult(const length& l, pair_in_one_thread& both, engine& which, Block block) {
    return l.nanoseconds_each(calls, [&] { both.in_ult_of(which, block); });
}

template <typename T>
auto next_of(pair_in_one_thread& both) {
    return both.client.procedure<T(T)>("next").on(both.server.address());
}

/// A struct of the user's that travels as a number, and looks for the context.
struct noted {
    std::uint64_t number = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        const auto* const more = a.template context<std::uint64_t>();
        a(number);
        if (more != nullptr) number += *more;
    }
};

double of_struct(const length& l, archive_context context) {
    pair_in_one_thread both(uri);
    both.server.define("next", [](noted at) { return at; });
    auto next = next_of<noted>(both);
    if (context) next = next.with_context(std::move(context));
    return in_callers(l, both, [&](std::size_t i) { (void)next(noted{i}); });
}

double without_context(const length& l) {
    return of_struct(l, {});
}

double with_context(const length& l) {
    return of_struct(l, std::make_shared<std::uint64_t>(1));
}

double with_statistics(const length& l) {
    pair_in_one_thread both(uri, {.statistics = statistics_options{}});
    both.server.define("next", [](std::uint64_t number) { return number + 1; });
    const auto next = next_of<std::uint64_t>(both);
    return in_callers(l, both, [&](std::size_t i) { (void)next(i); });
}

/// Sends a word along with each call, and reads it there.
struct metadata_of_calls final : interceptor {
    void calling(outgoing_call& call) override { call.attach("tenant", "blue"); }
    void serving(call_context& call) override {
        if (!call.metadata("tenant")) throw error(errc::denied, "a call came without its tenant");
    }
};

engine_options with_interceptor(std::shared_ptr<interceptor> one) {
    engine_options how;
    how.interceptors.push_back(std::move(one));
    return how;
}

/// A call of engines with such options at both ends.
double between(const engine_options& engines, const length& l,
               std::chrono::nanoseconds within = std::chrono::nanoseconds::max()) {
    pair_in_one_thread both(uri, engines);
    both.server.define("next", [](std::uint64_t number) { return number + 1; });
    const auto next = next_of<std::uint64_t>(both).within(within);
    return in_callers(l, both, [&](std::size_t i) { (void)next(i); });
}

double intercepted(const length& l) {
    return between(with_interceptor(std::make_shared<interceptor>()), l);
}

double with_metadata(const length& l) {
    return between(with_interceptor(std::make_shared<metadata_of_calls>()), l);
}

double with_checksum(const length& l) {
    return between({.checksum = true}, l);
}

double with_all(const length& l) {
    engine_options how = with_interceptor(std::make_shared<metadata_of_calls>());
    how.checksum = true;
    return between(how, l, 1min);
}

double raw_handler(const length& l) {
    pair_in_one_thread both(uri);
    both.server.define_raw("next", "u64(u64)", [](const raw_call& call) {
        return raw_values{{call.arguments().begin(), call.arguments().end()}, call.values_as()};
    });
    const auto next = next_of<std::uint64_t>(both);
    return in_callers(l, both, [&](std::size_t i) { (void)next(i); });
}

double raw_caller(const length& l) {
    pair_in_one_thread both(uri);
    both.server.define("next", [](std::uint64_t number) { return number + 1; });
    const peer there = both.there();
    return in_callers(l, both, [&](std::size_t i) {
        const auto arguments = raw_values::of(static_cast<std::uint64_t>(i));
        (void)both.client.call_raw(there, "next", "u64(u64)", arguments);
    });
}

/// The server passes the call on, to the client, so it is two calls.
double forwarded(const length& l) {
    pair_in_one_thread both(uri);
    both.client.define("next", [](std::uint64_t number) { return number + 1; });
    const peer back = both.server.lookup(both.client.address());
    both.server.define_any([&](const raw_call& call) { return call.forward(back); });
    const auto next = next_of<std::uint64_t>(both);
    return in_callers(l, both, [&](std::size_t i) { (void)next(i); });
}

struct counter_object {
    std::uint64_t next(std::uint64_t number) { return number + 1; }
};

/// `ask(both, there)` in place of a call, with a provider at the server.
template <typename Ask>
double with_provider(const length& l, Ask ask) {
    pair_in_one_thread both(uri);
    provider<counter_object> mine(both.server, "counter", std::make_shared<counter_object>(),
                                  {.provider = 3});
    mine.define("next", &counter_object::next, "Adds one.");
    const peer there = both.there();
    return in_callers(l, both, [&](std::size_t i) { ask(both, there, i); });
}

double method(const length& l) {
    return with_provider(l, [](pair_in_one_thread& both, const peer& there, std::size_t i) {
        (void)both.client.procedure<std::uint64_t(std::uint64_t)>("next").on(there, 3)(i);
    });
}

double identity(const length& l) {
    return with_provider(l, [](pair_in_one_thread& both, const peer& there, std::size_t) {
        (void)identity_of(both.client, there, 3);
    });
}

double health(const length& l) {
    return with_provider(l, [](pair_in_one_thread& both, const peer& there, std::size_t) {
        (void)health_of(both.client, there);
    });
}

double description(const length& l) {
    return with_provider(l, [](pair_in_one_thread& both, const peer& there, std::size_t) {
        (void)describe(both.client, there);
    });
}

double setting_health(const length& l) {
    pair_in_one_thread both(uri);
    return in_one_ult(l, both, both.server, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            set_health(both.server, i % 2 == 0, "the disk is full");
    });
}

double stop_function(const length& l) {
    pair_in_one_thread both(uri);
    return in_one_ult(l, both, both.server, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            both.server.drop_stop_function(both.server.on_stopping([] {}));
    });
}

/// Moves a procedure between two pools, by `move(server, pool)`.
template <typename Move>
double moved(const length& l, Move move) {
    pair_in_one_thread both(uri, {.streams = {{.name = "net", .pools = {"a", "b"}}},
                                  .pools = {{.name = "a"}, {.name = "b"}}});
    both.server.define("next", [](std::uint64_t number) { return number + 1; });
    return in_one_ult(l, both, both.server, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            move(both.server, i % 2 == 0 ? "a" : "b");
    });
}

double move_procedure(const length& l) {
    return moved(l, [](engine& server, const char* to) { server.move_procedure("next", to); });
}

double move_by_json(const length& l) {
    return moved(l, [](engine& server, const char* to) {
        const std::string where = to;
        change_engine(server, R"({"move": [{"name": "next", "to": ")" + where + R"("}]})");
    });
}

double streamed_value(const length& l) {
    pair_in_one_thread both(uri);
    both.server.define("values", [](stream_writer<std::uint64_t>& out, std::uint64_t most) {
        for (std::uint64_t i = 0; i < most; ++i)
            out(i);
    });
    const auto values = both.client.procedure<streamed<std::uint64_t>(std::uint64_t)>("values")
                            .on(both.server.address())
                            .within(1min);
    return in_one_ult(l, both, both.client, [&] {
        auto all = values(calls);
        while (all.next())
            continue;
    });
}

void define_sum(engine& server) {
    server.define("sum", [](stream_reader<std::uint64_t>& in) {
        std::uint64_t sum = 0;
        for (const std::uint64_t each : in)
            sum += each;
        return sum;
    });
}

using sums = std::uint64_t(streaming<std::uint64_t>);

double sent_value(const length& l) {
    pair_in_one_thread both(uri);
    define_sum(both.server);
    const auto sum = both.client.procedure<sums>("sum").on(both.server.address());
    return in_one_ult(l, both, both.client, [&] {
        auto up = sum.open();
        for (std::size_t i = 0; i < calls; ++i)
            up.send(i);
        (void)up.get();
    });
}

double sent_stream(const length& l) {
    pair_in_one_thread both(uri);
    define_sum(both.server);
    const auto sum = both.client.procedure<sums>("sum").on(both.server.address());
    return in_callers(l, both, [&](std::size_t i) {
        auto up = sum.open();
        up.send(i);
        (void)up.get();
    });
}

double both_ways(const length& l) {
    pair_in_one_thread both(uri);
    both.server.define("echo",
                       [](stream_reader<std::uint64_t>& in, stream_writer<std::uint64_t>& out) {
                           for (const std::uint64_t each : in)
                               out(each);
                       });
    const auto echo =
        both.client.procedure<streamed<std::uint64_t>(streaming<std::uint64_t>)>("echo").on(
            both.server.address());
    return l.nanoseconds_each(calls, [&] {
        both.in_callers([&] {
            auto one = echo.open();
            for (std::size_t i = 0; i < calls_each; ++i) {
                one.send(i);
                (void)one.next();
            }
            one.finish();
            while (one.next())
                continue;
        });
    });
}

constexpr question questions[] = {
    {"shm-struct", without_context},
    {"shm-context", with_context},
    {"shm-statistics", with_statistics},
    {"shm-interceptor", intercepted},
    {"shm-metadata", with_metadata},
    {"shm-checksum", with_checksum},
    {"shm-metadata-checksum-deadline", with_all},
    {"shm-raw-handler", raw_handler},
    {"shm-raw-caller", raw_caller},
    {"shm-forward", forwarded},
    {"shm-method", method},
    {"shm-identity", identity},
    {"shm-health", health},
    {"shm-describe", description},
    {"set_health", setting_health},
    {"on_stopping", stop_function},
    {"move_procedure", move_procedure},
    {"move-by-json", move_by_json},
    {"shm-value-deadline", streamed_value},
    {"shm-sent-value", sent_value},
    {"shm-sent-stream", sent_stream},
    {"shm-both-ways", both_ways},
};

}  // namespace

std::span<const question> questions_of_call_features() noexcept {
    return questions;
}

}  // namespace amalgam::bench
