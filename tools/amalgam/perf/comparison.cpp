#include "perf/comparison.hpp"

#include <fmt/format.h>

#include "perf/peers.hpp"

namespace amalgam::perf {

double figure_of(const perf_test& test, const measurement& m) {
    switch (test.shows) {
        case figure::time:
            return 1e6 / m.ops_per_s;
        case figure::rate:
            return m.ops_per_s;
        case figure::bandwidth:
            break;
    }
    return m.bytes_per_s / (1 << 30);
}

std::string_view unit_of(const perf_test& test) {
    return test.shows == figure::time ? "us" : test.shows == figure::rate ? "1/s" : "GiB/s";
}

comparison comparer::run(const perf_test& test, const request& asked) {
    comparison one;
    one.ours = run_apart(test, asked);
    one.ours.test = test.name;
    one.ours.uri = asked.uri;
    one.ours.size_bytes = asked.size_bytes;
    one.ours.depth = asked.depth;
    for (const std::string& library : libraries_)
        one.peers.push_back(peer(library, test, asked));
    return one;
}

std::optional<measurement> comparer::peer(const std::string& library, const perf_test& test,
                                          const request& asked) {
    const std::string_view over = medium_of(asked.uri);
    if (test.peer_test.empty() || over.empty()) return std::nullopt;
    const std::string question =
        fmt::format("{} {} {} {} {}", library, test.peer_test, over, asked.size_bytes, asked.depth);
    if (const auto known = measured_.find(question); known != measured_.end()) return known->second;
    const auto got = run_peer(library, test.peer_test, over, asked);
    if (!got && got.code() != errc::unsupported && !said_[got.sentence()]) {
        said_[got.sentence()] = true;
        fmt::print(stderr, "amalgam perf: {}\n", got.sentence());
    }
    return measured_[question] = got ? std::optional(*got) : std::nullopt;
}

std::string comparer::table_head() const {
    std::string head = fmt::format("{:<20} {:<24} {:>10} {:>6} {:>6} {:>12}", "test", "uri",
                                   "size B", "depth", "unit", "amalgam");
    for (const std::string& library : libraries_)
        head += fmt::format(" {:>12} {:>6}", library, "ratio");
    return head;
}

std::string comparer::table_row(const perf_test& test, const comparison& one) const {
    const double ours = figure_of(test, one.ours);
    const auto shown = [&](double value) {
        return test.shows == figure::rate ? fmt::format("{:.0f}", value)
                                          : fmt::format("{:.3f}", value);
    };
    std::string row =
        fmt::format("{:<20} {:<24} {:>10} {:>6} {:>6} {:>12}", one.ours.test, one.ours.uri,
                    one.ours.size_bytes, one.ours.depth, unit_of(test), shown(ours));
    for (const auto& peer : one.peers) {
        const double theirs = peer ? figure_of(test, *peer) : 0;
        row += fmt::format(" {:>12} {:>6}", peer ? shown(theirs) : "-",
                           peer ? fmt::format("{:.2f}x", ours / theirs) : "-");
    }
    return row;
}

}  // namespace amalgam::perf
