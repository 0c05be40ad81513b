// What more of a thing costs: `growth OUT.svg [SECONDS]` draws calls answered to 1 to 1,024 client
// processes over tcp and 1 to 64 over shared memory, and the memory of their server; the time of a
// call with 1 B to 1 GiB of argument; an item's time at each stage of a pipeline of 1 to 10,000
// stages, and what a stage holds. Prints one JSON object for each point.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <amalgam/flow.hpp>
#include <amalgam/rpc/engine.hpp>

#include "crowd.hpp"
#include "perf/measurement.hpp"
#include "perf/pair.hpp"
#include "perf/plot.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;

/// The processors of this program before it was pinned to one.
cpu_set_t all_processors;

struct way {
    const char* name;
    const char* uri;
    std::size_t most_clients;
};
constexpr way ways[] = {{"shm", "shm://", 64}, {"tcp", "tcp://127.0.0.1:0", bench::most_clients}};

void add(perf::plot_panel& to, std::size_t line, double x, double y) {
    to.lines[line].points.emplace_back(x, y);
    fmt::print("{{\"panel\": \"{}\", \"line\": \"{}\", \"x\": {:.0f}, \"{}\": {:.4g}}}\n", to.title,
               to.lines[line].name, x, to.y_label, y);
    std::fflush(stdout);
    ::alarm(300);  // In case anything hangs: the others die with this process.
}

perf::plot_panel panel(std::string title, std::string unit, std::string over, unsigned base = 4) {
    perf::plot_panel one{std::move(title), std::move(unit), {}};
    one.x_label = std::move(over);
    one.x_base = base;
    return one;
}

void clients(std::vector<perf::plot_panel>& into) {
    perf::plot_panel rate = panel("Calls of many clients", "calls/s", "clients");
    perf::plot_panel memory = panel("Memory of their server", "MiB", "clients");
    for (const way& each : ways) {
        rate.lines.push_back({each.name, {}});
        memory.lines.push_back({each.name, {}});
        for (std::size_t count = 1; count <= each.most_clients; count *= 2) {
            const bench::crowd got = bench::measure_crowd(each.uri, count);
            const std::size_t line = rate.lines.size() - 1;
            add(rate, line, static_cast<double>(count), got.calls_per_s);
            add(memory, line, static_cast<double>(count), got.server_bytes / (1 << 20));
        }
    }
    into.push_back(std::move(rate));
    into.push_back(std::move(memory));
}

constexpr std::size_t most_bytes = std::size_t{1} << 30;
using count_type = std::uint64_t(std::span<const std::byte>);

void serve(const std::string& uri, perf::channel& talk) {
    engine server(uri, {.name = "server", .spin = always_spin, .max_values_bytes = 2 * most_bytes});
    server.define<count_type>("count",
                              [](std::span<const std::byte> bytes) { return bytes.size(); });
    talk.write_line(server.address());
    talk.read_line();
}

/// Microseconds of a call with so many bytes.
void sizes(std::vector<perf::plot_panel>& into, double seconds) {
    perf::plot_panel time = panel("A call by its argument", "us", "bytes", 8);
    perf::plot_panel speed = panel("Bytes of arguments", "GiB/s", "bytes", 8);
    const std::vector<std::byte> bytes(most_bytes);
    for (const way& each : ways) {
        time.lines.push_back({each.name, {}});
        speed.lines.push_back({each.name, {}});
        const std::string uri = each.uri;
        perf::forked_peer server([&](perf::channel& talk) { serve(uri, talk); });
        engine me(uri, {.name = "client", .spin = always_spin});
        const auto count =
            me.procedure<count_type>("count").on(me.lookup(server.talk().read_line()));
        for (std::size_t size = 1; size <= bytes.size(); size *= 4) {
            std::vector<double> all;
            const auto start = perf::clock_type::now();
            do {
                const auto begin = perf::clock_type::now();
                (void)count(std::span(bytes).first(size));
                all.push_back(perf::seconds_since(begin));
            } while (perf::seconds_since(start) < seconds);
            const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
            std::nth_element(all.begin(), middle, all.end());
            const std::size_t line = time.lines.size() - 1;
            const auto x = static_cast<double>(size);
            add(time, line, x, *middle * 1e6);
            add(speed, line, x, x / *middle / (1 << 30));
        }
    }
    into.push_back(std::move(time));
    into.push_back(std::move(speed));
}

struct stages_cost {
    double ns_per_hop = 0;
    double kib_per_stage = 0;
};

stages_cost stages(int count) {
    const std::uint64_t items = std::max<std::uint64_t>(20'000'000 / (count + 10), 2000);
    perf::clock_type::time_point first;
    std::size_t most = 0;
    const std::size_t before = bench::resident_bytes();
    am::graph g;
    auto so_far =
        g.pipeline(g.add_source<std::uint64_t>("from", [&](am::outlet<std::uint64_t>& out) {
            first = perf::clock_type::now();
            for (std::uint64_t i = 0; i < items; ++i)
                out.send(i);
        }));
    for (int i = 0; i < count; ++i)
        so_far = g.pipeline(so_far,
                            g.add_stage<std::uint64_t, std::uint64_t>(
                                fmt::format("stage{}", i), [](std::uint64_t n) { return n + 1; }));
    std::uint64_t seen = 0;
    double seconds = 0;
    g.pipeline(so_far, g.add_sink<std::uint64_t>("to", [&](std::uint64_t) {
        if (++seen < items) return;
        seconds = perf::seconds_since(first);
        most = bench::resident_bytes();
    }));
    am::run(g, {.threads = 2});
    return {seconds * 1e9 / static_cast<double>(items) / (count + 1),
            static_cast<double>(most - std::min(most, before)) / 1024 / (count + 2)};
}

void pipelines(std::vector<perf::plot_panel>& into) {
    perf::plot_panel time = panel("Stages of a pipeline", "ns per item and hop", "stages", 10);
    perf::plot_panel memory = panel("What a stage holds", "KiB", "stages", 10);
    time.lines.push_back({"2 streams", {}});
    memory.lines.push_back({"2 streams", {}});
    for (const int count : {1, 3, 10, 30, 100, 300, 1000, 3000, 10000}) {
        // A process of its own: memory that one run leaves would be the next one's.
        perf::forked_peer other([&](perf::channel& talk) {
            ::sched_setaffinity(0, sizeof(all_processors), &all_processors);
            const stages_cost got = stages(count);
            talk.write_line(fmt::format("{} {}", got.ns_per_hop, got.kib_per_stage));
            talk.read_line();
        });
        stages_cost got;
        std::sscanf(other.talk().read_line().c_str(), "%lf %lf", &got.ns_per_hop,
                    &got.kib_per_stage);
        add(time, 0, count, got.ns_per_hop);
        add(memory, 0, count, got.kib_per_stage);
    }
    into.push_back(std::move(time));
    into.push_back(std::move(memory));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: {} OUT.svg [SECONDS]\n", argv[0]);
        return 2;
    }
    ::alarm(300);
    ::sched_getaffinity(0, sizeof(all_processors), &all_processors);
    std::vector<perf::plot_panel> panels;
    try {
        pipelines(panels);
        clients(panels);
        sizes(panels, argc > 2 ? std::atof(argv[2]) : 0.3);
    } catch (const std::exception& why) {
        fmt::print(stderr, "{}: {}\n", argv[0], why.what());
        return 1;
    }
    std::ofstream(argv[1]) << perf::to_svg(panels);
    return 0;
}
