// Injected code compared with one-way calls that do the same: `bench_inject TEST URI [SECONDS]`.
// Prints one JSON object per size, and finally one whose `value` is
//   latency-cached, latency-always    latency of a message over that of a one-way call
//   rate-cached, rate-always          messages per second over one-way calls per second
// each for the worst of 1 B to 1 MiB; latency-always-1 and latency-always-64k: for that size; or
//   first-use                         microseconds for a call of a signed image of 4 KiB that the
//                                     target does not know
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "injection_pair.hpp"

namespace {

using namespace amalgam;
using bench::way;

double compare(const std::string& test, const std::string& uri, double seconds) {
    bench::injection_pair both(uri);
    const bool by_rate = test.starts_with("rate");
    const std::vector<way> ways{way::rpc,
                                test.find("cached") != test.npos ? way::cached : way::always};
    std::vector<std::size_t> sizes = bench::payloads;
    if (test.ends_with("-1")) sizes = {1};
    if (test.ends_with("-64k")) sizes = {65536};
    std::vector<double> ratios;
    for (const std::size_t each : sizes) {
        const auto got =
            by_rate ? both.rates(ways, each, seconds) : both.latencies(ways, each, seconds);
        ratios.push_back(got[1].ratio);
        fmt::print("{{\"bytes\": {}, \"rpc\": {:.4g}, \"injected\": {:.4g}, \"ratio\": {:.3f}}}\n",
                   each, got[0].value, got[1].value, ratios.back());
    }
    const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
    return by_rate ? *least : *most;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string test = argc > 2 ? argv[1] : "";
    const std::vector<std::string> tests{"latency-cached", "latency-always",   "rate-cached",
                                         "rate-always",    "latency-always-1", "latency-always-64k",
                                         "first-use"};
    if (std::find(tests.begin(), tests.end(), test) == tests.end()) {
        fmt::print(stderr, "usage: {} {} URI [SECONDS]\n", argv[0], fmt::join(tests, "|"));
        return 2;
    }
    const double seconds = argc > 3 ? std::atof(argv[3]) : 1;
    try {
        const double value = test == "first-use"
                                 ? bench::injection_pair(argv[2]).first_use(seconds) * 1e6
                                 : compare(test, argv[2], seconds);
        fmt::print("{{\"test\": \"inject-{}\", \"uri\": \"{}\", \"value\": {:.4g}}}\n", test,
                   argv[2], value);
    } catch (const error& why) {
        fmt::print(stderr, "{}: {}\n", argv[0], why.what());
        return 1;
    }
    return 0;
}
