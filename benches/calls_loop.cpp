// A call and its streams on a loop_network in virtual time, whose own work is included.
#include <cstddef>
#include <span>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/rpc.hpp>

#include "calls.hpp"
#include "pair_in_one_thread.hpp"

namespace amalgam::bench {

namespace {

struct pair_on_a_network {
    loop_network net;
    engine server{net.port("server")};
    engine client{net.port("client")};

    /// Per operation of a `block()` that does all of them in one ULT of the client.
    template <typename Block>
    double in_one_ult(const length& l, Block block) {
        return l.nanoseconds_each(calls, [&] {
            future<void> done = client.spawn(block);
            net.run_until_idle();
            done.get();
        });
    }
    template <typename Signature>
    auto procedure(const char* name) {
        return client.procedure<Signature>(name).on(server.address());
    }
};

double call(const length& l) {
    pair_on_a_network both;
    both.server.define("add", [](int a, int b) { return a + b; });
    const auto add = both.procedure<int(int, int)>("add");
    return both.in_one_ult(l, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            (void)add(static_cast<int>(i), 1);
    });
}

double streamed_value(const length& l) {
    pair_on_a_network both;
    both.server.define("values", [](stream_writer<int>& out, int most) {
        for (int i = 0; i < most; ++i)
            out(i);
    });
    const auto values = both.procedure<streamed<int>(int)>("values");
    return both.in_one_ult(l, [&] {
        auto all = values(static_cast<int>(calls));
        while (all.next())
            continue;
    });
}

void define_sum(engine& server) {
    server.define("sum", [](stream_reader<int>& in) {
        int sum = 0;
        for (const int each : in)
            sum += each;
        return sum;
    });
}

double sent_value(const length& l) {
    pair_on_a_network both;
    define_sum(both.server);
    const auto sum = both.procedure<int(streaming<int>)>("sum");
    return both.in_one_ult(l, [&] {
        auto up = sum.open();
        for (std::size_t i = 0; i < calls; ++i)
            up.send(1);
        (void)up.get();
    });
}

double sent_stream(const length& l) {
    pair_on_a_network both;
    define_sum(both.server);
    const auto sum = both.procedure<int(streaming<int>)>("sum");
    return both.in_one_ult(l, [&] {
        for (std::size_t i = 0; i < calls; ++i) {
            auto up = sum.open();
            up.send(1);
            (void)up.get();
        }
    });
}

constexpr question questions[] = {
    {"loop-call", call},
    {"loop-value", streamed_value},
    {"loop-sent-value", sent_value},
    {"loop-sent-stream", sent_stream},
};

}  // namespace

std::span<const question> questions_of_loop_calls() noexcept {
    return questions;
}

}  // namespace amalgam::bench
