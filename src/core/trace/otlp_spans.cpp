#include "otlp_spans.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include <amalgam/core/detail/json_text.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/hash.hpp>
#include <amalgam/core/otlp_trace.hpp>
#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {

constexpr std::size_t most_waits = 64;
constexpr std::size_t most_units = 1 << 18;

// Numbers of the protocol: enum SpanKind, enum StatusCode.
constexpr int kind_internal = 1, kind_server = 2, kind_client = 3;
constexpr int status_error = 2;

std::string to_hex(std::uint64_t id) {
    return detail::to_hex(std::as_bytes(std::span(&id, 1)));
}

void append_key(std::string& json, std::string_view key) {
    if (json.back() == '}') json += ',';
    json += "{\"key\":";
    append_json_string(json, key);
}
void append_text(std::string& json, std::string_view key, std::string_view value) {
    if (value.empty()) return;
    append_key(json, key);
    json += ",\"value\":{\"stringValue\":";
    append_json_string(json, value);
    json += "}}";
}
// 64-bit numbers are strings in the JSON of protocol buffers.
void append_number(std::string& json, std::string_view key, std::uint64_t value) {
    append_key(json, key);
    json += fmt::format(",\"value\":{{\"intValue\":\"{}\"}}}}",
                        std::min<std::uint64_t>(value, std::uint64_t{1} << 62));
}

std::uint64_t wall(std::uint64_t time, std::int64_t to_wall) noexcept {
    const std::int64_t at = static_cast<std::int64_t>(time) + to_wall;
    return at > 0 ? static_cast<std::uint64_t>(at) : 0;
}

void append_event(std::string& json, std::string_view name, std::uint64_t time) {
    if (json.back() == '}') json += ',';
    json += fmt::format("{{\"timeUnixNano\":\"{}\",\"name\":", time);
    append_json_string(json, name);
    json += '}';
}

std::string_view kind_of(span_kind kind) noexcept {
    switch (kind) {
        case span_kind::call:
            return "call";
        case span_kind::one_way:
            return "one-way call";
        case span_kind::handler:
            return "handler";
        case span_kind::transfer:
            return "transfer";
        case span_kind::batch:
            return "batch";
        case span_kind::stream:
            return "stream";
        case span_kind::values:
            return "values";
    }
    return "?";
}

}  // namespace

void unit_waits::see(const trace_unit_bytes& event) {
    // task_event: running 1, yielded 2, parked 3, resumed 4, ended 5.
    const std::uint8_t what = event.head.what;
    if (what == 5) {
        ended_.insert(event.unit);
        return;
    }
    // The address is used again.
    ended_.erase(event.unit);
    ended_before_.erase(event.unit);
    if (what == 3) {
        if (units_.size() >= most_units) units_.clear();  // A file of lies.
        unit& now = units_[event.unit];
        now.parked = event.time;
        now.what = event.waits_for;
        return;
    }
    const auto found = units_.find(event.unit);
    if (found == units_.end() || found->second.parked == 0) return;
    unit& now = found->second;
    now.waits.push_back({now.parked, std::max(event.time, now.parked), now.what});
    now.parked = 0;
    if (now.waits.size() > most_waits) {
        now.lost_until = now.waits.front().until;
        ++now.lost;
        now.waits.erase(now.waits.begin());
    }
}

std::vector<unit_wait> unit_waits::within(std::uint64_t which, std::uint64_t from,
                                          std::uint64_t until, std::uint64_t& lost) const {
    std::vector<unit_wait> found;
    lost = 0;
    const auto at = units_.find(which);
    if (which == 0 || at == units_.end()) return found;
    if (at->second.lost_until > from) lost = at->second.lost;
    for (const unit_wait& each : at->second.waits) {
        if (each.from >= from && each.until <= until) found.push_back(each);
    }
    return found;
}

void unit_waits::forget_ended() {
    for (const std::uint64_t each : ended_before_)
        units_.erase(each);
    ended_before_ = std::exchange(ended_, {});
}

std::uint64_t handler_id(std::uint64_t call_id) noexcept {
    const std::uint64_t id = mix(call_id ^ 0x68616e646c657221u);
    return id != 0 ? id : 1;
}

std::string begin_request(const recorded_file& of, std::string_view service,
                          std::string_view attributes) {
    const trace_file_header& header = of.header();
    const std::string_view program = recorded_file::text_of(header.program);
    const std::string_view own_service = recorded_file::text_of(header.service);
    const std::string_view own_attributes = recorded_file::text_of(header.attributes);
    if (!own_service.empty()) service = own_service;
    std::string json = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
    bool names_service = false;
    // What follows is a fact, and not up to the environment.
    std::unordered_set<std::string> seen{"process.pid", "process.executable.name", "host.name"};
    for (const auto& [key, value] :
         parse_baggage(own_attributes.empty() ? attributes : own_attributes)) {
        if (value.empty() || (key == "service.name" && !service.empty())) continue;
        if (!seen.insert(key).second) continue;  // Keys must be unique.
        names_service = names_service || key == "service.name";
        append_text(json, key, value);
    }
    const std::string_view file = program.substr(program.rfind('/') + 1);
    if (service.empty() && !names_service) service = file.empty() ? "unknown_service" : file;
    append_text(json, "service.name", service);
    append_text(json, "host.name", recorded_file::text_of(header.host));
    append_text(json, "process.executable.name", file);
    append_number(json, "process.pid", header.pid);
    json += "]},\"scopeSpans\":[{\"scope\":{\"name\":\"amalgam\"},\"spans\":[";
    return json;
}

void end_request(std::string& json) {
    json += "]}]}]}";
}

void append_span(std::string& json, const recorded_file& of, const read_span& span,
                 std::int64_t to_wall, const unit_waits& waits) {
    const trace_span_bytes& what = span.what;
    const auto kind = static_cast<span_kind>(what.head.kind);
    const std::uint64_t id = number_of(id_of(what.id));
    const std::uint64_t above = number_of(id_of(what.parent));
    const bool is_handler = kind == span_kind::handler;
    const bool is_call = kind == span_kind::call || kind == span_kind::one_way;
    const std::uint64_t end = std::max(what.begin, what.end);
    if (json.back() == '}') json += ',';
    json += fmt::format("{{\"traceId\":\"{}\",\"spanId\":\"{}\"", detail::to_hex(what.trace),
                        to_hex(is_handler ? handler_id(id) : id));
    // A handler is below its call, and what it calls is below the handler.
    if (is_handler && above != id) json += fmt::format(",\"parentSpanId\":\"{}\"", to_hex(id));
    // A batch of a stream is below that, and so is no handler's.
    if (!is_handler && above != 0)
        json += fmt::format(",\"parentSpanId\":\"{}\"",
                            to_hex(kind == span_kind::values ? above : handler_id(above)));
    json += ",\"name\":";
    const std::string_view name = of.text(what.name);
    append_json_string(json, name.empty() ? kind_of(kind) : name);
    json += fmt::format(
        ",\"kind\":{},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[",
        is_handler ? kind_server
        : is_call  ? kind_client
                   : kind_internal,
        wall(what.begin, to_wall), wall(end, to_wall));
    append_text(json, "amalgam.kind", kind_of(kind));
    if (is_handler || is_call) {
        append_text(json, "rpc.system", "amalgam");
        append_text(json, "rpc.method", name);
    }
    append_text(json, "amalgam.peer", of.text(what.peer));
    append_number(json, "amalgam.bytes", what.bytes);
    if (what.values != 0) append_number(json, "amalgam.values", what.values);
    json += "],\"events\":[";
    const std::uint64_t middle = std::clamp(what.middle, what.begin, end);
    if (what.middle != 0 && (is_handler || is_call)) {
        append_event(json, is_handler ? "runs" : "left for the peer", wall(middle, to_wall));
    }
    std::uint64_t lost = 0;
    if (is_handler) {
        for (const unit_wait& each : waits.within(span.unit, middle, end, lost)) {
            const std::string_view for_what = of.text(each.what);
            append_event(json,
                         fmt::format("waits for {}", for_what.empty() ? "something" : for_what),
                         wall(each.from, to_wall));
            json.pop_back();
            json += ",\"attributes\":[";
            append_number(json, "amalgam.waited_ns", each.until - each.from);
            json += "]}";
        }
    }
    json += ']';
    if (lost != 0)
        json +=
            fmt::format(",\"droppedEventsCount\":{}", std::min<std::uint64_t>(lost, 0xffffffff));
    const auto code = static_cast<errc>(what.code);
    if (code != errc::ok) {
        json += fmt::format(",\"status\":{{\"code\":{},\"message\":", status_error);
        append_json_string(json, amalgam::name(code));
        json += '}';
    }
    json += '}';
}

}  // namespace amalgam::detail
