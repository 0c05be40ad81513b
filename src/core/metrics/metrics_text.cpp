#include <array>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/metrics.hpp>

namespace amalgam {

namespace {

struct shown_quantile {
    double q;
    const char* name;
};
constexpr std::array<shown_quantile, 4> shown_quantiles{
    {{0.5, "p50"}, {0.9, "p90"}, {0.99, "p99"}, {0.999, "p99.9"}}};

constexpr std::string_view total = "_total";

// The buckets that Prometheus sees: from 256 ns to 69 s.
constexpr unsigned first_shown_bits = 8, last_shown_bits = 36;

double in_seconds(clock::duration time) {
    return std::chrono::duration<double>(time).count();
}

std::string in_words(clock::duration time) {
    const double ns = std::chrono::duration<double, std::nano>(time).count();
    if (ns < 1e3) return fmt::format("{:.0f} ns", ns);
    if (ns < 1e6) return fmt::format("{:.1f} us", ns / 1e3);
    if (ns < 1e9) return fmt::format("{:.1f} ms", ns / 1e6);
    return fmt::format("{:.1f} s", ns / 1e9);
}

/// How many bytes at the front are one character of well-formed UTF-8; 0: they are none.
std::size_t character_at_front(std::string_view text) {
    const auto at = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i])
                               : static_cast<unsigned char>(0);
    };
    const unsigned first = at(0);
    if (first < 0x80) return 1;
    const std::size_t bytes = first >= 0xf0 && first <= 0xf4   ? 4
                              : first >= 0xe0 && first <= 0xef ? 3
                              : first >= 0xc2 && first <= 0xdf ? 2
                                                               : 0;
    for (std::size_t i = 1; i < bytes; ++i)
        if ((at(i) & 0xc0) != 0x80) return 0;
    const bool too_long = (first == 0xe0 && at(1) < 0xa0) || (first == 0xf0 && at(1) < 0x90);
    const bool no_character = (first == 0xed && at(1) >= 0xa0) || (first == 0xf4 && at(1) >= 0x90);
    return too_long || no_character ? 0 : bytes;
}

/// Names come from peers, and are any bytes. `quotes`: as within quotes, where these are escaped.
std::string escaped(std::string_view text, bool quotes = true) {
    std::string out;
    while (!text.empty()) {
        const std::size_t bytes = character_at_front(text);
        if (bytes == 0) {
            out += "\xef\xbf\xbd";
            text.remove_prefix(1);
        } else if (text[0] == '\\' || (quotes && text[0] == '"')) {
            out += '\\';
            out += text[0];
            text.remove_prefix(1);
        } else if (const std::size_t control = detail::control_at_front(text); control != 0) {
            if (text[0] == '\n')
                out += "\\n";
            else
                out += "\\\\" + detail::printable_name(text.substr(0, control)).substr(1);
            text.remove_prefix(control);
        } else {
            out += text.substr(0, bytes);
            text.remove_prefix(bytes);
        }
    }
    return out;
}

/// A name as Prometheus allows it, whatever a peer has sent.
std::string plain_name(std::string_view text) {
    std::string name(text);
    for (char& c : name) {
        const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == ':';
        if (!fits) c = '_';
    }
    return name.empty() || (name[0] >= '0' && name[0] <= '9') ? "_" + name : name;
}

std::string labels_of(const metric_sample& one, std::string_view further = {}) {
    std::string out;
    for (const metric_label& each : one.labels)
        out += fmt::format("{}{}=\"{}\"", out.empty() ? "" : ",", plain_name(each.name),
                           escaped(each.value));
    if (!further.empty()) out += fmt::format("{}{}", out.empty() ? "" : ",", further);
    return out.empty() ? out : "{" + out + "}";
}

/// As Prometheus writes it; fmt's words differ.
std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
    return fmt::format("{}", value);
}

bool is_shown(const metric_family& what, std::string_view only) {
    return what.what.name.find(only) != std::string::npos;
}

void add_histogram(std::string& out, const std::string& name, const metric_sample& one) {
    const std::uint64_t all = one.latency.count();
    for (unsigned bits = first_shown_bits; bits <= last_shown_bits; ++bits) {
        const double le = static_cast<double>(std::uint64_t{1} << bits) / 1e9;
        out += fmt::format("{}_bucket{} {}\n", name, labels_of(one, fmt::format("le=\"{}\"", le)),
                           one.latency.count_below(bits));
    }
    out += fmt::format("{}_bucket{} {}\n", name, labels_of(one, "le=\"+Inf\""), all);
    out += fmt::format("{}_sum{} {}\n", name, labels_of(one),
                       static_cast<double>(one.latency.total_ns) / 1e9);
    out += fmt::format("{}_count{} {}\n", name, labels_of(one), all);
}

const char* word_of(metric_kind kind) {
    return kind == metric_kind::counter ? "counter"
           : kind == metric_kind::gauge ? "gauge"
                                        : "histogram";
}

}  // namespace

std::string to_text(const metric_snapshot& all, std::string_view only) {
    std::string out;
    for (const metric_family& family : all.families) {
        if (!is_shown(family, only)) continue;
        for (const metric_sample& each : family.samples) {
            out += detail::printable_name(family.what.name) + labels_of(each);
            if (family.what.kind != metric_kind::latency) {
                out += fmt::format(" {}\n", each.value);
                continue;
            }
            out += fmt::format(" count {} mean {}", each.latency.count(),
                               in_words(each.latency.mean()));
            for (const shown_quantile& point : shown_quantiles)
                out += fmt::format(" {} {}", point.name, in_words(each.latency.quantile(point.q)));
            out += '\n';
        }
    }
    if (all.left_out != 0)
        out += fmt::format("{} numbers above the limits were left out\n", all.left_out);
    if (all.failed != 0)
        out += fmt::format("{} callbacks failed; their numbers are missing\n", all.failed);
    return out;
}

std::string to_json(const metric_snapshot& all, std::string_view only) {
    using json = nlohmann::ordered_json;
    json metrics = json::array();
    for (const metric_family& family : all.families) {
        if (!is_shown(family, only)) continue;
        json samples = json::array();
        for (const metric_sample& each : family.samples) {
            json labels = json::object();
            for (const metric_label& one : each.labels)
                labels[one.name] = one.value;
            json sample{{"labels", std::move(labels)}};
            if (family.what.kind == metric_kind::latency) {
                sample["count"] = each.latency.count();
                sample["mean"] = in_seconds(each.latency.mean());
                for (const shown_quantile& point : shown_quantiles)
                    sample[point.name] = in_seconds(each.latency.quantile(point.q));
            } else {
                sample["value"] = each.value;
            }
            samples.push_back(std::move(sample));
        }
        metrics.push_back({{"name", family.what.name},
                           {"kind", word_of(family.what.kind)},
                           {"unit", family.what.unit},
                           {"help", family.what.help},
                           {"samples", std::move(samples)}});
    }
    const json both{
        {"metrics", std::move(metrics)}, {"left_out", all.left_out}, {"failed", all.failed}};
    return both.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_prometheus(const metric_snapshot& all, std::string_view only) {
    std::string out;
    for (const metric_family& family : all.families) {
        if (!is_shown(family, only)) continue;
        const std::string name = plain_name(family.what.name);
        out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, escaped(family.what.help, false),
                           name, word_of(family.what.kind));
        for (const metric_sample& each : family.samples) {
            if (family.what.kind == metric_kind::latency)
                add_histogram(out, name, each);
            else
                out += fmt::format("{}{} {}\n", name, labels_of(each), number(each.value));
        }
    }
    return out;
}

std::string to_openmetrics(const metric_snapshot& all, std::string_view only) {
    std::string out;
    for (const metric_family& family : all.families) {
        if (!is_shown(family, only)) continue;
        // The family's name has no "_total", which only its samples have.
        std::string name = plain_name(family.what.name);
        const bool counts = family.what.kind == metric_kind::counter;
        if (counts && name.ends_with("_total")) name.resize(name.size() - total.size());
        out += fmt::format("# TYPE {} {}\n", name, word_of(family.what.kind));
        const std::string& unit = family.what.unit;
        if (!unit.empty() && name.ends_with("_" + unit))
            out += fmt::format("# UNIT {} {}\n", name, unit);
        out += fmt::format("# HELP {} {}\n", name, escaped(family.what.help));
        for (const metric_sample& each : family.samples) {
            if (family.what.kind == metric_kind::latency)
                add_histogram(out, name, each);
            else
                out += fmt::format("{}{}{} {}\n", name, counts ? total : "", labels_of(each),
                                   number(each.value));
        }
    }
    return out + "# EOF\n";
}

}  // namespace amalgam
