#include "perf/measurement.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amalgam::perf {

std::string to_json(const measurement& m) {
    return nlohmann::ordered_json{{"test", m.test},
                                  {"uri", m.uri},
                                  {"size_bytes", m.size_bytes},
                                  {"depth", m.depth},
                                  {"ops_per_s", m.ops_per_s},
                                  {"bytes_per_s", m.bytes_per_s},
                                  {"p50_us", m.p50_us},
                                  {"p99_us", m.p99_us}}
        .dump();
}

std::optional<measurement> measurement_from_json(const std::string& text) {
    try {
        const auto in = nlohmann::json::parse(text);
        measurement m;
        in.at("test").get_to(m.test);
        in.at("uri").get_to(m.uri);
        in.at("size_bytes").get_to(m.size_bytes);
        in.at("depth").get_to(m.depth);
        in.at("ops_per_s").get_to(m.ops_per_s);
        in.at("bytes_per_s").get_to(m.bytes_per_s);
        in.at("p50_us").get_to(m.p50_us);
        in.at("p99_us").get_to(m.p99_us);
        return m;
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

std::string table_head() {
    return fmt::format("{:<20} {:<24} {:>10} {:>6} {:>13} {:>11} {:>10} {:>10}", "test", "uri",
                       "size B", "depth", "ops/s", "MiB/s", "p50 us", "p99 us");
}

std::string table_row(const measurement& m) {
    const auto time = [](double us) {
        return us == 0 ? std::string("-") : fmt::format("{:.3f}", us);
    };
    return fmt::format("{:<20} {:<24} {:>10} {:>6} {:>13.0f} {:>11.1f} {:>10} {:>10}", m.test,
                       m.uri, m.size_bytes, m.depth, m.ops_per_s, m.bytes_per_s / (1 << 20),
                       time(m.p50_us), time(m.p99_us));
}

}  // namespace amalgam::perf
