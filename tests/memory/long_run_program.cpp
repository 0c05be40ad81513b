#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <amalgam/bulk.hpp>
#include <amalgam/flow.hpp>
#include <amalgam/rpc.hpp>

// What scripts/long_run watches: ordinary work, at a pace that leaves most of a core free.
//
//   serve          an engine, whose address it prints; ends with its input
//   call URI S     calls it for S seconds: calls, one-way calls, failures, streams, bulk
//   flow S         the graph of a run, for S seconds

namespace {

using namespace std::chrono_literals;
using when = std::chrono::steady_clock::time_point;

constexpr std::size_t large_bytes = std::size_t{256} << 10;

int serve() {
    am::engine server(am::endpoints{"tcp://127.0.0.1:0"}, am::engine_options{.name = "serve"});
    server.define("sum", [](int a, int b) { return a + b; });
    server.define("quick", [](int a) { return a + 1; }, {.run = am::handler::inline_});
    server.define("text", [](const std::string& what) { return what + what; });
    server.define("fails", [] { throw am::error(am::errc::not_found, "no such order"); });
    server.define("note", [](const std::string&) {});
    server.define("count", [](am::stream_writer<int>& out, int to) {
        for (int i = 0; i < to; ++i)
            out(i);
    });
    server.define("add_up", [](am::stream_reader<int>& in) {
        int sum = 0;
        for (const int each : in)
            sum += each;
        return sum;
    });
    server.define("size", [](am::bulk what) { return what.pull_all().size(); });
    am::offer_metrics(server);
    std::printf("%s\n", server.address().c_str());
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
    server.stop();
    return 0;
}

void call_all(am::engine& client, const am::peer& there, am::bulk shown, int round) {
    const auto expect = [](bool fact) {
        if (!fact) std::abort();
    };
    for (int i = 0; i < 20; ++i) {
        expect(client.procedure<int(int, int)>("sum").on(there)(i, round) == i + round);
        expect(client.procedure<int(int)>("quick").on(there)(i) == i + 1);
    }
    const std::string text(static_cast<std::size_t>(100 + round % 4000), 'x');
    expect(client.procedure<std::string(std::string)>("text").on(there)(text) == text + text);
    client.procedure<void(std::string)>("note").on(there).post(text);
    expect(!client.procedure<void()>("fails").on(there).try_call().ok());
    if (round % 10 != 0) return;
    int last = 0;
    for (const int each : client.procedure<am::streamed<int>(int)>("count").on(there)(200))
        last = each;
    expect(last == 199);
    auto up = client.procedure<int(am::streaming<int>)>("add_up").on(there).open();
    for (int i = 0; i < 200; ++i)
        up.send(i);
    expect(up.get() == 199 * 100);
    expect(client.procedure<std::size_t(am::bulk)>("size").on(there)(shown) == large_bytes);
}

int call(const std::string& address, when until) {
    am::engine client(am::endpoints{"tcp://127.0.0.1:0"}, am::engine_options{.name = "call"});
    const am::peer there = client.lookup(address);
    const std::vector<std::byte> large(large_bytes);
    const am::exposed shown = am::expose(client, large);
    for (int round = 0; std::chrono::steady_clock::now() < until; ++round) {
        call_all(client, there, shown, round);
        std::this_thread::sleep_for(250ms);
    }
    return 0;
}

int flow(when until) {
    am::graph graph;
    auto from = graph.add_source<std::string>("from", [until](am::outlet<std::string>& out) {
        for (std::size_t i = 0; std::chrono::steady_clock::now() < until; ++i) {
            for (std::size_t k = 0; k < 50; ++k)
                out.send(std::string(1 + (i + k) % 300, 'x'));
            am::this_task::sleep_for(250ms);
        }
    });
    auto sizes = graph.add_farm<std::string, std::size_t>(
        "sizes", 2, [](const std::string& each) { return each.size(); });
    auto to = graph.add_sink<std::size_t>("to", [](std::size_t) {});
    graph.pipeline(from, sizes, to);
    graph.group("G1").add(from);
    graph.group("G2").add(sizes);
    graph.group("G3").add(to);
    return am::run_main(graph);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto now = std::chrono::steady_clock::now();
    if (what == "serve" && argc == 2) return serve();
    if (what == "call" && argc == 4)
        return call(argv[2], now + std::chrono::seconds(std::atoi(argv[3])));
    if (what == "flow" && argc == 3) return flow(now + std::chrono::seconds(std::atoi(argv[2])));
    std::fputs("usage: long_run_program serve | call URI SECONDS | flow SECONDS\n", stderr);
    return 2;
}
