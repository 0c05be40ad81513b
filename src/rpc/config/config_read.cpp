#include "rpc/config/config_read.hpp"

#include <fmt/format.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/engine_config.hpp>

#include "core/text/json_reader.hpp"
#include "rpc/config/config_words.hpp"
#include "rpc/context/options_check.hpp"

// From JSON to engine_config; config.cpp has the reverse.

namespace amalgam {

namespace {

using detail::json_reader;

constexpr std::string_view config_example = R"({"endpoints": "tcp://127.0.0.1:0"})";
constexpr std::int64_t most_streams = 1024;

std::string read_endpoint(const json_reader& from) {
    std::string text = from.text("a URI", R"("tcp://127.0.0.1:0")");
    const auto parsed = parse_uri(text);
    if (!parsed) from.fail(fmt::format("{}: {}", from.path(), parsed.sentence()));
    return text;
}

std::vector<std::string> read_endpoints(const json_reader& from) {
    if (from.value().is_string()) return {read_endpoint(from)};
    if (!from.value().is_array() || from.value().empty()) {
        from.unexpected("a URI, or a list of them", R"(["shm://", "tcp://127.0.0.1:0"])");
    }
    std::vector<std::string> all;
    for (std::size_t i = 0; i < from.value().size(); ++i)
        all.push_back(read_endpoint(from.at(i)));
    return all;
}

std::vector<pool_options> read_pools(const json_reader& from) {
    if (!from.value().is_object()) {
        from.unexpected("an object of pools by name", R"({"io": {"kind": "fifo"}})");
    }
    std::vector<pool_options> all;
    for (const auto& [name, ignored] : from.value().items()) {
        const json_reader one = from.at(name);
        one.expect_object({"kind", "levels"}, R"({"kind": "fifo"})");
        pool_options& fresh = all.emplace_back();
        fresh.name = name;
        if (one.has("kind")) fresh.kind = one.at("kind").word(detail::pool_words);
        if (one.has("levels")) {
            fresh.levels = static_cast<unsigned>(one.at("levels").number(1, 256, 4));
        }
    }
    return all;
}

cpu_set read_cpus(const json_reader& from) {
    const std::string text = from.text("a set of CPUs", R"("numa:1")");
    if (text.empty()) return {};
    try {
        return cpu_set(text);
    } catch (const error& wrong) {
        from.fail(fmt::format("{}: {}", from.path(), wrong.what()));
    }
}

}  // namespace

stream_options detail::read_stream(const json_reader& from) {
    from.expect_object({"name", "cpu", "cpus", "pools", "scheduler"}, R"({"cpu": 0})");
    stream_options one;
    if (from.has("name")) one.name = from.at("name").text("a name", R"("worker")");
    if (from.has("cpu")) one.cpu = static_cast<int>(from.at("cpu").number(-1, 1023, 0));
    if (from.has("cpus")) one.cpus = read_cpus(from.at("cpus"));
    if (from.has("pools")) {
        const json_reader pools = from.at("pools");
        if (!pools.value().is_array()) pools.unexpected("a list of pool names", R"(["io"])");
        for (std::size_t i = 0; i < pools.value().size(); ++i)
            one.pools.push_back(pools.at(i).text("a pool name", R"("io")"));
    }
    if (from.has("scheduler")) one.scheduler = from.at("scheduler").word(detail::scheduler_words);
    return one;
}

namespace {

stream_set read_streams(const json_reader& from) {
    if (from.value().is_number()) {
        return static_cast<unsigned>(from.number(1, most_streams, 2));
    }
    if (!from.value().is_array() || from.value().empty() ||
        from.value().size() > static_cast<std::size_t>(most_streams)) {
        from.unexpected(fmt::format("a number or a list of 1 to {} streams", most_streams),
                        R"([{"cpu": 0}, {"cpu": 1}])");
    }
    std::vector<stream_options> all;
    for (std::size_t i = 0; i < from.value().size(); ++i)
        all.push_back(detail::read_stream(from.at(i)));
    return all;
}

std::chrono::nanoseconds read_spin(const json_reader& from) {
    if (from.value() == "adaptive") return adaptive_spin;
    if (from.value() == "always") return always_spin;
    return from.time(port_options::longest_limit, R"(, "adaptive" or "always")", R"("20us")");
}

std::chrono::milliseconds read_milliseconds(const json_reader& from) {
    const auto exact = from.time(port_options::longest_limit, "", R"("500ms")");
    return std::chrono::ceil<std::chrono::milliseconds>(exact);
}

void read_size(const json_reader& from, std::string_view key, std::size_t& into) {
    if (!from.has(key)) return;
    into = static_cast<std::size_t>(
        from.at(key).number(0, detail::most_bytes, static_cast<std::int64_t>(into)));
}

void read_ports(const json_reader& from, port_options& into) {
    from.expect_object({"silence_limit", "frame_limit", "max_strangers", "max_queued_bytes",
                        "max_queued_bytes_total", "insecure"},
                       R"({"silence_limit": "5s"})");
    if (from.has("silence_limit")) into.silence_limit = read_milliseconds(from.at("silence_limit"));
    if (into.silence_limit < std::chrono::milliseconds(1)) {
        from.at("silence_limit").unexpected("a positive duration", R"("5s")");
    }
    if (from.has("frame_limit")) into.frame_limit = read_milliseconds(from.at("frame_limit"));
    read_size(from, "max_strangers", into.max_strangers);
    read_size(from, "max_queued_bytes", into.max_queued_bytes);
    read_size(from, "max_queued_bytes_total", into.max_queued_bytes_total);
    if (from.has("insecure")) into.insecure = from.at("insecure").truth(false);
}

void read_keepalive(const json_reader& from, keepalive_options& into) {
    from.expect_object({"interval", "timeout"}, R"({"interval": "10s", "timeout": "20s"})");
    if (from.has("interval")) into.interval = read_milliseconds(from.at("interval"));
    if (from.has("timeout")) into.timeout = read_milliseconds(from.at("timeout"));
}

statistics_options read_statistics(const json_reader& from) {
    from.expect_object({"file", "max_rows"}, R"({"file": "/tmp/statistics.{host}.{pid}.json"})");
    statistics_options into;
    if (from.has("file")) {
        into.file =
            from.at("file").text("the path of a file", R"("/tmp/statistics.{host}.{pid}.json")");
    }
    read_size(from, "max_rows", into.max_rows);
    return into;
}

void read_progress(const json_reader& from, progress_options& into) {
    from.expect_object({"by", "spin"}, R"({"by": "own_stream"})");
    if (from.has("by")) into.by = from.at("by").word(detail::progress_words);
    if (from.has("spin")) into.spin = read_spin(from.at("spin"));
}

/// `one`: an example of one, in quotes.
std::vector<std::string> read_texts(const json_reader& from, std::string_view what,
                                    std::string_view one) {
    if (!from.value().is_array())
        from.unexpected(fmt::format("a list of {}s", what), fmt::format("[{}]", one));
    std::vector<std::string> all;
    for (std::size_t i = 0; i < from.value().size(); ++i)
        all.push_back(from.at(i).text(fmt::format("a {}", what), one));
    return all;
}

/// An object without any of the three would be a slip: "names": [] says that nobody may.
allow_list read_allow_list(const json_reader& from) {
    constexpr std::string_view example = R"({"groups": ["operators"], "uids": [0]})";
    from.expect_object({"names", "groups", "uids"}, example);
    if (from.value().empty()) from.unexpected("an object with names, groups or uids", example);
    allow_list list;
    if (from.has("names")) list.names = read_texts(from.at("names"), "name", R"("node7")");
    if (from.has("groups")) list.groups = read_texts(from.at("groups"), "group", R"("operators")");
    if (!from.has("uids")) return list;
    const json_reader uids = from.at("uids");
    if (!uids.value().is_array()) uids.unexpected("a list of user ids", "[0, 1000]");
    for (std::size_t i = 0; i < uids.value().size(); ++i)
        list.uids.push_back(static_cast<std::uint32_t>(uids.at(i).number(0, 0xffffffff, 1000)));
    return list;
}

std::vector<std::pair<std::string, allow_list>> read_allow_lists(const json_reader& from) {
    if (!from.value().is_object())
        from.unexpected("an object of allow lists by procedure",
                        R"({"sum": {"groups": ["operators"]}})");
    std::vector<std::pair<std::string, allow_list>> all;
    for (const auto& [name, ignored] : from.value().items())
        all.emplace_back(name, read_allow_list(from.at(name)));
    return all;
}

engine_config read_config(const json_reader& from) {
    from.expect_object({"endpoints",
                        "name",
                        "streams",
                        "pools",
                        "handlers",
                        "progress",
                        "spin",
                        "ports",
                        "max_queued",
                        "max_running",
                        "max_one_ways",
                        "max_unread_bytes",
                        "max_unread_bytes_total",
                        "max_borrowed_bytes",
                        "max_borrowed_bytes_total",
                        "max_reader_bytes",
                        "max_values_bytes",
                        "encoding",
                        "checksum",
                        "drain",
                        "remote_stop",
                        "reflection",
                        "keepalive",
                        "statistics",
                        "allow",
                        "allow_for"},
                       config_example);
    if (!from.has("endpoints")) {
        from.fail(
            fmt::format("endpoints is missing, expected a URI, or a list of them; example: {}",
                        config_example));
    }
    engine_config config;
    engine_options& options = config.options;
    config.endpoints = read_endpoints(from.at("endpoints"));
    if (from.has("name")) options.name = from.at("name").text("a name", R"("server")");
    if (from.has("streams")) options.streams = read_streams(from.at("streams"));
    if (from.has("pools")) options.pools = read_pools(from.at("pools"));
    if (from.has("handlers")) {
        options.handlers = from.at("handlers").text("a pool name or stream", R"("io")");
    }
    if (from.has("progress")) read_progress(from.at("progress"), options.progress);
    if (from.has("spin")) options.spin = read_spin(from.at("spin"));
    if (from.has("ports")) read_ports(from.at("ports"), options.ports);
    read_size(from, "max_queued", options.max_queued);
    read_size(from, "max_running", options.max_running);
    read_size(from, "max_one_ways", options.max_one_ways);
    read_size(from, "max_unread_bytes_total", options.max_unread_bytes_total);
    read_size(from, "max_unread_bytes", options.max_unread_bytes);
    read_size(from, "max_borrowed_bytes", options.max_borrowed_bytes);
    read_size(from, "max_borrowed_bytes_total", options.max_borrowed_bytes_total);
    read_size(from, "max_reader_bytes", options.max_reader_bytes);
    read_size(from, "max_values_bytes", options.max_values_bytes);
    if (from.has("encoding")) {
        options.encoding = from.at("encoding").word(detail::encoding_words);
    }
    if (from.has("checksum")) options.checksum = from.at("checksum").truth(true);
    if (from.has("remote_stop")) {
        options.remote_stop = from.at("remote_stop").truth(false);
    }
    if (from.has("reflection")) options.reflection = from.at("reflection").truth(true);
    if (from.has("keepalive")) read_keepalive(from.at("keepalive"), options.keepalive);
    if (from.has("statistics")) options.statistics = read_statistics(from.at("statistics"));
    if (from.has("allow")) options.allow = read_allow_list(from.at("allow"));
    if (from.has("allow_for")) options.allow_for = read_allow_lists(from.at("allow_for"));
    if (from.has("drain")) options.drain = read_milliseconds(from.at("drain"));
    try {
        engine_options filled = options;
        detail::fill_in(filled);
        detail::check(filled);
    } catch (const error& wrong) {
        from.fail(wrong.what());
    }
    return config;
}

}  // namespace

result<engine_config> parse_engine_config(std::string_view text, std::string_view origin) {
    try {
        const json_reader::json document = json_reader::parse(text, origin, config_example);
        return read_config(json_reader(document, "", origin));
    } catch (const error& wrong) {
        return {wrong.code().code, wrong.what()};
    }
}

result<engine_config> load_engine_config(const std::string& path) {
    const auto read = detail::read_file(path, detail::most_config_bytes);
    if (!read)
        return {read.code().code,
                fmt::format("the config \"{}\" {}, expected a JSON file; example: {}", path,
                            read.sentence(), config_example)};
    const std::string_view text(reinterpret_cast<const char*>(read->data()), read->size());
    return parse_engine_config(text, path);
}

}  // namespace amalgam
