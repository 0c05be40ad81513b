// Cost of injecting code by payload size, as in figures 3 and 4 of the paper: `bench_inject_curves
// OUT.svg [SECONDS]` measures latency and rate over shm and tcp of one-way calls, of injected code
// that is cached, that is in every message, and that is put into a ring of the target, and of UCX's
// active messages, if amalgam-peer-ucx is present. Prints one JSON object for each.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include <amalgam/core/status.hpp>

#include "injection_pair.hpp"
#include "perf/peers.hpp"
#include "perf/plot.hpp"

namespace {

using namespace amalgam;

const std::vector<std::string> lines{"one-way call", "code cached", "code in every message",
                                     "put into a ring", "UCX active message"};

/// One diagram: `measure(bytes)` returns a value per line, 0 for none.
template <typename Measure>
perf::plot_panel panel(const std::string& title, const std::string& unit, double factor,
                       Measure measure) {
    perf::plot_panel all{title, unit, {}};
    all.x_label = "payload (bytes)";
    for (const std::string& each : lines)
        all.lines.push_back({each, {}});
    for (const std::size_t bytes : bench::payloads) {
        const std::vector<double> got = measure(bytes);
        for (std::size_t i = 0; i < got.size(); ++i) {
            if (got[i] == 0) continue;
            all.lines[i].points.emplace_back(static_cast<double>(bytes), got[i] * factor);
            fmt::print("{{\"panel\": \"{}\", \"line\": \"{}\", \"bytes\": {}, \"{}\": {:.4g}}}\n",
                       title, lines[i], bytes, unit, got[i] * factor);
            std::fflush(stdout);
        }
    }
    return all;
}

std::vector<double> values(const std::vector<bench::way_figures>& all) {
    std::vector<double> only;
    for (const bench::way_figures& each : all)
        only.push_back(each.value);
    return only;
}

/// The processors of this program before it was pinned to one.
cpu_set_t all_processors;

/// UCX's operations per second; 0 if not available.
double ucx(const char* test, const std::string& over, std::size_t bytes, double seconds) {
    perf::request asked;
    asked.size_bytes = bytes;
    asked.depth = std::clamp<std::size_t>((std::size_t{1} << 22) / bytes, 4, 1000);
    asked.seconds = seconds;
    ::sched_setaffinity(0, sizeof(all_processors), &all_processors);
    const auto got = perf::run_peer("ucx", test, over, asked);
    return got ? got->ops_per_s : 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        fmt::print(stderr, "usage: {} OUT.svg [SECONDS]\n", argv[0]);
        return 2;
    }
    const double seconds = argc > 2 ? std::atof(argv[2]) : 0.5;
    ::sched_getaffinity(0, sizeof(all_processors), &all_processors);
    const std::vector<bench::way> ways{bench::way::rpc, bench::way::cached, bench::way::always,
                                       bench::way::ring};
    std::vector<perf::plot_panel> panels;
    try {
        for (const std::string over : {"shm", "tcp"}) {
            const std::string uri = over == "shm" ? "shm://" : "tcp://127.0.0.1:0";
            panels.push_back(panel("Latency, " + over, "us", 0.5e6, [&](std::size_t bytes) {
                auto got = values(bench::injection_pair(uri).latencies(ways, bytes, seconds));
                const double rate = ucx("message-latency", over, bytes, seconds / 4);
                got.push_back(rate == 0 ? 0 : 1 / rate);
                return got;
            }));
            panels.push_back(panel("Rate, " + over, "messages/s", 1, [&](std::size_t bytes) {
                auto got = values(bench::injection_pair(uri).rates(ways, bytes, seconds));
                got.push_back(ucx("message-rate", over, bytes, seconds / 4));
                return got;
            }));
        }
    } catch (const error& why) {
        fmt::print(stderr, "{}: {}\n", argv[0], why.what());
        return 1;
    }
    std::ofstream(argv[1]) << perf::to_svg(panels);
    return 0;
}
