// Graphs within a process: `bench_flow pipeline|stages10|stages1000|farm`. Prints nanoseconds per
// item and hop (pipeline: a source and a sink, each pinned to a core; stages: that many between
// them, on two streams), or per item (farm: a source, two workers, a sink, on two streams).
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include <amalgam/flow.hpp>

int main(int argc, char** argv) {
    const std::string what = argc == 2 ? argv[1] : "";
    if (what != "pipeline" && what != "farm" && what != "stages10" && what != "stages1000") {
        std::fprintf(stderr, "usage: %s pipeline|stages10|stages1000|farm\n", argv[0]);
        return 2;
    }
    const int stages = what == "stages10" ? 10 : what == "stages1000" ? 1000 : 0;
    const std::uint64_t items = stages == 1000 ? 20000 : stages == 10 ? 2000000 : 20000000;
    using clock = std::chrono::steady_clock;
    clock::time_point first;
    std::uint64_t sum = 0;
    am::graph g;
    auto from = g.add_source<std::uint64_t>("from", [&](am::outlet<std::uint64_t>& out) {
        first = clock::now();
        for (std::uint64_t i = 0; i < items; ++i)
            out.send(i);
    });
    auto to = g.add_sink<std::uint64_t>("to", [&](std::uint64_t n) { sum += n; });
    const auto plus_one = [](std::uint64_t n) { return n + 1; };
    double hops = 1;
    if (what == "farm") {
        g.pipeline(from, g.add_farm<std::uint64_t, std::uint64_t>("worker", 2, plus_one), to);
    } else {
        auto so_far = g.pipeline(from);
        for (int i = 0; i < stages; ++i)
            so_far = g.pipeline(so_far, g.add_stage<std::uint64_t, std::uint64_t>(
                                            "stage" + std::to_string(i), plus_one));
        g.pipeline(so_far, to);
        hops = stages + 1;
        if (stages == 0) {
            g.pin(0, from);
            g.pin(1, to);
        }
    }
    am::run(g, {.threads = 2});
    const double ns = std::chrono::duration<double, std::nano>(clock::now() - first).count();
    std::printf("{\"test\": \"flow-%s\", \"value\": %.4g}\n", what.c_str(),
                ns / static_cast<double>(items) / hops);
    return sum == 0 ? 1 : 0;
}
