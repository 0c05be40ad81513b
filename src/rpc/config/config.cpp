#include <algorithm>
#include <chrono>
#include <utility>

#include <amalgam/core/detail/json_text.hpp>
#include <amalgam/rpc/engine_config.hpp>

#include "core/text/json_reader.hpp"
#include "rpc/config/config_words.hpp"
#include "rpc/core/core.hpp"

// From engine_config to JSON; config_read.cpp has the reverse. Writes text rather than
// nlohmann values, whose destructors allocate, which without memory ends the process.

namespace amalgam {

namespace {

/// A key, and its value as JSON.
using member = std::pair<std::string_view, std::string>;

std::string in_quotes(std::string_view text) {
    std::string json;
    detail::append_json_string(json, text);
    return json;
}

std::string object(const std::vector<member>& members) {
    std::string json = "{";
    for (const auto& [key, value] : members) {
        if (json.size() > 1) json += ',';
        json += in_quotes(key) + ':' + value;
    }
    return json + '}';
}

template <typename Value, typename ToJson>
std::string list(const std::vector<Value>& values, ToJson to_json) {
    std::string json = "[";
    for (const Value& each : values) {
        if (json.size() > 1) json += ',';
        json += to_json(each);
    }
    return json + ']';
}

template <typename Value, std::size_t N>
std::string word_of(const std::pair<std::string_view, Value> (&words)[N], Value value) {
    for (const auto& each : words) {
        if (each.second == value) return in_quotes(each.first);
    }
    return in_quotes(words[0].first);
}

// Longer and shorter times mean the same as these, and no machine has more bytes.
std::string time_of(std::chrono::nanoseconds time) {
    return in_quotes(detail::time_text(
        std::clamp<std::chrono::nanoseconds>(time, {}, port_options::longest_limit)));
}

std::string time_of(std::chrono::milliseconds time) {
    return time_of(std::chrono::nanoseconds(
        std::clamp(time, std::chrono::milliseconds(), port_options::longest_limit)));
}

std::string size_of(std::size_t size) {
    return std::to_string(std::min<std::size_t>(size, detail::most_bytes));
}

std::string spin_of(std::chrono::nanoseconds spin) {
    if (spin < spin.zero()) return in_quotes("adaptive");
    if (spin == always_spin) return in_quotes("always");
    return time_of(spin);
}

std::string pools_of(const std::vector<pool_options>& pools) {
    std::vector<member> all;
    for (const pool_options& each : pools) {
        std::vector<member> one{{"kind", word_of(detail::pool_words, each.kind)}};
        if (each.kind == pool_kind::priority)
            one.emplace_back("levels", std::to_string(each.levels));
        all.emplace_back(each.name, object(one));
    }
    return object(all);
}

std::string stream_of(const stream_options& stream) {
    return object({{"name", in_quotes(stream.name)},
                   {"cpu", std::to_string(stream.cpu)},
                   {"cpus", in_quotes(stream.cpus.text())},
                   {"pools", list(stream.pools, in_quotes)},
                   {"scheduler", word_of(detail::scheduler_words, stream.scheduler)}});
}

std::string progress_of(const engine_options& options) {
    return object({{"by", word_of(detail::progress_words, options.progress.by)},
                   {"spin", spin_of(options.progress.spin.value_or(options.spin))}});
}

std::string ports_of(const port_options& ports) {
    return object({{"silence_limit", time_of(ports.silence_limit)},
                   {"frame_limit", time_of(ports.frame_limit)},
                   {"max_strangers", size_of(ports.max_strangers)},
                   {"max_queued_bytes", size_of(ports.max_queued_bytes)},
                   {"max_queued_bytes_total", size_of(ports.max_queued_bytes_total)},
                   {"insecure", ports.insecure ? "true" : "false"}});
}

std::string allow_of(const allow_list& who) {
    return object(
        {{"names", list(who.names, in_quotes)},
         {"groups", list(who.groups, in_quotes)},
         {"uids", list(who.uids, [](std::uint32_t uid) { return std::to_string(uid); })}});
}

}  // namespace

std::string to_json(const engine_config& config) {
    const engine_options& options = config.options;
    std::vector<member> all{
        {"endpoints", list(config.endpoints, in_quotes)},
        {"name", in_quotes(options.name)},
        {"streams", list(options.streams.each, stream_of)},
        {"pools", pools_of(options.pools)},
        {"handlers", in_quotes(options.handlers)},
        {"progress", progress_of(options)},
        {"spin", spin_of(options.spin)},
        {"ports", ports_of(options.ports)},
        {"max_queued", size_of(options.max_queued)},
        {"max_running", size_of(options.max_running)},
        {"max_one_ways", size_of(options.max_one_ways)},
        {"max_unread_bytes_total", size_of(options.max_unread_bytes_total)},
        {"max_unread_bytes", size_of(options.max_unread_bytes)},
        {"max_borrowed_bytes", size_of(options.max_borrowed_bytes)},
        {"max_borrowed_bytes_total", size_of(options.max_borrowed_bytes_total)},
        {"max_reader_bytes", size_of(options.max_reader_bytes)},
        {"max_values_bytes", size_of(options.max_values_bytes)},
        {"encoding", word_of(detail::encoding_words, options.encoding)},
        {"checksum", options.checksum ? "true" : "false"},
        {"remote_stop", options.remote_stop ? "true" : "false"},
        {"reflection", options.reflection ? "true" : "false"},
        {"keepalive", object({{"interval", time_of(options.keepalive.interval)},
                              {"timeout", time_of(options.keepalive.timeout)}})},
        {"drain", time_of(options.drain)}};
    if (options.statistics) {
        all.emplace_back("statistics",
                         object({{"file", in_quotes(options.statistics->file)},
                                 {"max_rows", size_of(options.statistics->max_rows)}}));
    }
    if (options.allow) all.emplace_back("allow", allow_of(*options.allow));
    if (!options.allow_for.empty()) {
        std::vector<member> lists;
        for (const auto& [name, list] : options.allow_for)
            lists.emplace_back(name, allow_of(list));
        all.emplace_back("allow_for", object(lists));
    }
    return object(all);
}

engine_config detail::engine_core::configuration() {
    return {uris_, streams_.effective()};
}

}  // namespace amalgam
