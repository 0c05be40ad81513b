// Throughput of one server with a growing number of client processes. The server has the second
// processor, all clients share the first; each has 16 calls of 64 B in flight.
//   many_clients shm|tcp CLIENTS            calls/s of that many clients together
//   many_clients shm|tcp worst-over-best    the lowest of these rates over the highest, for 1, 2,
//                                           4 ... 64 clients
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

#include "crowd.hpp"
#include "perf/measurement.hpp"

namespace {

using namespace amalgam;
using bench::crowd_argument_bytes;
using bench::crowd_in_flight;
using bench::measure_crowd;

constexpr std::size_t most_clients = 64;
constexpr int rounds = 7;

void print(const std::string& uri, std::size_t clients, double calls_per_s) {
    perf::measurement m;
    m.test = "server-throughput";
    m.uri = uri;
    m.size_bytes = crowd_argument_bytes;
    m.depth = clients * crowd_in_flight;
    m.ops_per_s = calls_per_s;
    m.bytes_per_s = calls_per_s * static_cast<double>(crowd_argument_bytes);
    std::puts(perf::to_json(m).c_str());
    std::fflush(stdout);
}

/// Rotates through the numbers of clients, and takes the best rate of each: the machine is shared,
/// and its slow moments of a second or more would otherwise distort the comparison.
double worst_over_best(const std::string& uri) {
    std::map<std::size_t, std::vector<double>> all;
    for (int i = 0; i < rounds; ++i)
        for (std::size_t clients = 1; clients <= most_clients; clients *= 2)
            all[clients].push_back(measure_crowd(uri, clients).calls_per_s);
    std::vector<double> rates;
    for (const auto& [clients, of_all_rounds] : all) {
        rates.push_back(*std::max_element(of_all_rounds.begin(), of_all_rounds.end()));
        print(uri, clients, rates.back());
    }
    const auto [worst, best] = std::minmax_element(rates.begin(), rates.end());
    return *worst / *best;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view over = argc == 3 ? argv[1] : "";
    const std::string_view what = argc == 3 ? argv[2] : "";
    const auto clients = static_cast<std::size_t>(argc == 3 ? std::atoll(argv[2]) : 0);
    const bool all = what == "worst-over-best";
    if ((over != "shm" && over != "tcp") || (!all && (clients == 0 || clients > most_clients))) {
        std::fprintf(stderr,
                     "usage: %s shm|tcp worst-over-best, or a number of clients up to %zu\n",
                     argv[0], most_clients);
        return 2;
    }
    ::alarm(100);  // In case anything hangs: the others die with this process.
    try {
        const std::string uri = over == "shm" ? "shm://" : "tcp://127.0.0.1:0";
        if (all) {
            std::printf("{\"test\": \"server-throughput\", \"value\": %.6g}\n",
                        worst_over_best(uri));
        } else {
            print(uri, clients, measure_crowd(uri, clients).calls_per_s);
        }
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
