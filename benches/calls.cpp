// Cost of a call, a one-way call, a stream value and a 4 KiB push, over shared memory and tcp. Both
// ends run in one thread, so that count_instructions sees all of it and nothing else.
//   calls shm-call|shm-inline|shm-deadline|shm-loop|shm-post|shm-value|shm-push|tcp-…
//   [SECONDS|OPERATIONSx] ns for one
// and of the rarer operations, over shared memory: see calls_features.cpp and calls_bulk.cpp; on a
// loop_network: see calls_loop.cpp.
#include "calls.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/stream_writer.hpp>
#include <amalgam/rpc/streamed.hpp>

#include "pair_in_one_thread.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::calls;
using bench::calls_each;
using bench::pair_in_one_thread;

constexpr auto no_deadline = std::chrono::nanoseconds::max();

double call(const std::string& uri, handler way, const bench::length& how_long,
            std::chrono::nanoseconds within = no_deadline) {
    pair_in_one_thread both(uri);
    both.server.define("next", [](std::uint64_t number) { return number + 1; }, {.run = way});
    const auto next = both.client.procedure<std::uint64_t(std::uint64_t)>("next")
                          .on(both.server.address())
                          .within(within);
    return how_long.nanoseconds_each(calls, [&] {
        both.in_callers([&] {
            for (std::size_t i = 0; i < calls_each; ++i)
                (void)next(i);
        });
    });
}

/// One call after the other, as in an event loop that has nothing else to do.
double in_a_loop(const std::string& uri, const bench::length& how_long) {
    pair_in_one_thread both(uri);
    both.server.define("next", [](std::uint64_t number) { return number + 1; });
    const auto next =
        both.client.procedure<std::uint64_t(std::uint64_t)>("next").on(both.server.address());
    return how_long.nanoseconds_each(calls, [&] {
        for (std::size_t i = 0; i < calls; ++i) {
            future<std::uint64_t> later = next.start(i);
            both.drive_until([&] { return later.ready(); });
            later.get();
        }
    });
}

double one_way(const std::string& uri, const bench::length& how_long) {
    pair_in_one_thread both(uri);
    std::size_t ran = 0;
    both.server.define("count", [&](std::uint64_t) { ++ran; });
    const auto count =
        both.client.procedure<void(std::uint64_t)>("count").on(both.server.address());
    std::size_t sent = 0;
    return how_long.nanoseconds_each(calls, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            count.post(i);
        sent += calls;
        both.drive_until([&] { return ran == sent; });
    });
}

double stream_value(const std::string& uri, const bench::length& how_long) {
    pair_in_one_thread both(uri);
    both.server.define("values", [](stream_writer<std::uint64_t>& out, std::uint64_t most) {
        for (std::uint64_t i = 0; i < most; ++i)
            out(i);
    });
    const auto values = both.client.procedure<streamed<std::uint64_t>(std::uint64_t)>("values").on(
        both.server.address());
    return how_long.nanoseconds_each(calls, [&] {
        future<void> reader = both.client.spawn([&] {
            auto all = values(calls);
            while (all.next())
                continue;
        });
        both.drive_until([&] { return reader.ready(); });
        reader.get();
    });
}

double push(const std::string& uri, const bench::length& how_long) {
    pair_in_one_thread both(uri);
    std::vector<std::byte> target(4096);
    const std::vector<std::byte> source(target.size(), std::byte{7});
    const exposed shown = expose(both.server, target, access::read_write);
    both.server.define("where", [&]() -> bulk { return shown; });
    const auto where = both.client.procedure<bulk()>("where").on(both.server.address());
    std::optional<bulk> there;
    both.in_ult_of(both.client, [&] { there.emplace(where()); });
    return how_long.nanoseconds_each(calls, [&] {
        both.in_callers([&] {
            for (std::size_t i = 0; i < calls_each; ++i)
                there->push(source);
        });
    });
}

constexpr const char* shm = "shm://";
constexpr const char* tcp = "tcp://127.0.0.1:0";

}  // namespace

int main(int argc, char** argv) {
    using bench::length;
    using std::chrono_literals::operator""min;
    constexpr std::array<bench::question, 14> known{{
        {"shm-call", [](const length& l) { return call(shm, handler::ult, l); }},
        {"shm-inline", [](const length& l) { return call(shm, handler::inline_, l); }},
        {"shm-deadline", [](const length& l) { return call(shm, handler::ult, l, 1min); }},
        {"shm-loop", [](const length& l) { return in_a_loop(shm, l); }},
        {"shm-post", [](const length& l) { return one_way(shm, l); }},
        {"shm-value", [](const length& l) { return stream_value(shm, l); }},
        {"shm-push", [](const length& l) { return push(shm, l); }},
        {"tcp-call", [](const length& l) { return call(tcp, handler::ult, l); }},
        {"tcp-inline", [](const length& l) { return call(tcp, handler::inline_, l); }},
        {"tcp-deadline", [](const length& l) { return call(tcp, handler::ult, l, 1min); }},
        {"tcp-loop", [](const length& l) { return in_a_loop(tcp, l); }},
        {"tcp-post", [](const length& l) { return one_way(tcp, l); }},
        {"tcp-value", [](const length& l) { return stream_value(tcp, l); }},
        {"tcp-push", [](const length& l) { return push(tcp, l); }},
    }};
    std::vector<bench::question> all(known.begin(), known.end());
    for (const auto& more : {bench::questions_of_call_features(), bench::questions_of_bulk(),
                             bench::questions_of_loop_calls()}) {
        all.insert(all.end(), more.begin(), more.end());
    }
    return bench::answer_one(argc, argv, all);
}
