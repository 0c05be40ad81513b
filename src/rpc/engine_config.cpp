#include <amalgam/rpc/engine_config.hpp>

#include "rpc/engine_config_words.hpp"
#include "rpc/engine_core.hpp"
#include "rpc/json_reader.hpp"

// From an engine_config to JSON; the way there is in engine_config_read.cpp.

namespace amalgam {

namespace {

using json = detail::json_reader::json;

template <typename Value, std::size_t N>
std::string_view word_of(const std::pair<std::string_view, Value> (&words)[N], Value value) {
    for (const auto& each : words) {
        if (each.second == value) return each.first;
    }
    return words[0].first;
}

std::string spin_text(std::chrono::nanoseconds spin) {
    if (spin < spin.zero()) return "adaptive";
    if (spin == always_spin) return "always";
    return detail::time_text(spin);
}

json pools_json(const std::vector<pool_options>& pools) {
    json all = json::object();
    for (const pool_options& each : pools) {
        json& one = all[each.name];
        one["kind"] = word_of(detail::pool_words, each.kind);
        if (each.kind == pool_kind::priority) one["levels"] = each.levels;
    }
    return all;
}

json streams_json(const std::vector<stream_options>& streams) {
    json all = json::array();
    for (const stream_options& each : streams) {
        all.push_back({{"name", each.name},
                       {"cpu", each.cpu},
                       {"pools", each.pools},
                       {"scheduler", word_of(detail::scheduler_words, each.scheduler)}});
    }
    return all;
}

}  // namespace

std::string to_json(const engine_config& config) {
    const engine_options& options = config.options;
    json all = json::object();
    all["endpoints"] = config.endpoints;
    all["name"] = options.name;
    all["streams"] = streams_json(options.streams.each);
    all["pools"] = pools_json(options.pools);
    all["handlers"] = options.handlers;
    all["progress"] = {{"by", word_of(detail::progress_words, options.progress.by)},
                       {"spin", spin_text(options.progress.spin.value_or(options.spin))}};
    all["spin"] = spin_text(options.spin);
    all["ports"] = {{"silence_limit", detail::time_text(options.ports.silence_limit)},
                    {"frame_limit", detail::time_text(options.ports.frame_limit)},
                    {"max_strangers", options.ports.max_strangers},
                    {"max_queued_bytes", options.ports.max_queued_bytes},
                    {"max_queued_bytes_total", options.ports.max_queued_bytes_total}};
    all["max_queued"] = options.max_queued;
    all["max_running"] = options.max_running;
    all["max_one_ways"] = options.max_one_ways;
    all["max_unread_bytes_total"] = options.max_unread_bytes_total;
    all["max_unread_bytes"] = options.max_unread_bytes;
    all["max_borrowed_bytes"] = options.max_borrowed_bytes;
    all["max_borrowed_bytes_total"] = options.max_borrowed_bytes_total;
    all["max_values_bytes"] = options.max_values_bytes;
    all["encoding"] = word_of(detail::encoding_words, options.encoding);
    all["checksum"] = options.checksum;
    all["drain"] = detail::time_text(options.drain);
    return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

engine_config detail::engine_core::configuration() {
    return {uris_, streams_.effective()};
}

}  // namespace amalgam
