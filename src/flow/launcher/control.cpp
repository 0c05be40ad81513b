#include "flow/launcher/control.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <nlohmann/json.hpp>
#include <sys/socket.h>

#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

using json = nlohmann::json;
using kind = control_message::kind;

constexpr std::array<std::pair<kind, const char*>, 11> kinds{{{kind::welcome, "welcome"},
                                                              {kind::key, "key"},
                                                              {kind::keys, "keys"},
                                                              {kind::ready, "ready"},
                                                              {kind::refused, "refused"},
                                                              {kind::go, "go"},
                                                              {kind::status_query, "status_query"},
                                                              {kind::report, "report"},
                                                              {kind::checkpoint, "checkpoint"},
                                                              {kind::saved, "saved"},
                                                              {kind::failed, "failed"}}};

constexpr int max_depth = 4;

}  // namespace

std::string encode(const control_message& message) {
    json out;
    for (const auto& [what, text] : kinds)
        if (what == message.what) out["kind"] = text;
    switch (message.what) {
        case kind::welcome:
            out["group"] = message.group;
            out["replica"] = message.replica;
            out["config"] = message.config;
            out["report_ms"] = message.report_ms;
            out["checkpoints"] = message.checkpoints;
            out["checkpoint"] = message.checkpoint;
            if (!message.restart.empty()) out["restart"] = message.restart;
            break;
        case kind::key:
            out["join_ms"] = message.join_ms;
            [[fallthrough]];
        case kind::keys:
            out["keys"] = message.keys;
            break;
        case kind::report:
            out["report"] = message.report;
            if (message.answers_queries) out["answers_queries"] = true;
            if (!message.metrics.empty()) out["metrics"] = message.metrics;
            if (!message.drawing.empty()) out["drawing"] = message.drawing;
            if (!message.ults.empty()) out["ults"] = message.ults;
            break;
        case kind::ready:
            out["address"] = message.address;
            out["graph"] = message.graph;
            out["answers_queries"] = message.answers_queries;
            out["join_ms"] = message.join_ms;
            break;
        case kind::go:
            out["addresses"] = message.addresses;
            break;
        case kind::status_query:
            if (message.asks_ults) out["asks_ults"] = true;
            break;
        case kind::checkpoint:
            out["checkpoint"] = message.checkpoint;
            break;
        case kind::saved:
            out["checkpoint"] = message.checkpoint;
            out["sentence"] =
                std::string_view(message.sentence).substr(0, limits::max_reason_bytes);
            break;
        case kind::refused:
        case kind::failed:
            out["sentence"] =
                std::string_view(message.sentence).substr(0, limits::max_reason_bytes);
            out["because_of_other"] = message.because_of_other;
            break;
    }
    return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

result<control_message> decode_control(std::string_view line) {
    try {
        // Valid messages nest no deeper, and deep nesting would take much memory.
        json in = json::parse(
            line, [](int depth, json::parse_event_t, const json&) { return depth <= max_depth; });
        control_message message;
        bool known = false;
        auto word = in.at("kind").get<std::string>();
        for (const auto& [what, text] : kinds) {
            if (word != text) continue;
            message.what = what;
            known = true;
        }
        if (!known) return {errc::invalid, "a control message has an unknown kind"};
        // A number with a point may be larger than all of ours.
        for (const char* number : {"replica", "report_ms", "join_ms", "checkpoint"})
            if (const auto found = in.find(number); found != in.end() && found->is_number_float())
                return {errc::invalid, std::string(number) + " is not a whole number"};
        message.group = in.value("group", "");
        message.replica = in.value("replica", std::size_t{0});
        message.config = in.value("config", "");
        message.report_ms = in.value("report_ms", std::uint64_t{0});
        message.report = in.value("report", "");
        message.checkpoints = in.value("checkpoints", "");
        message.checkpoint = in.value("checkpoint", std::uint64_t{0});
        message.restart = in.value("restart", "");
        message.metrics = in.value("metrics", "");
        message.drawing = in.value("drawing", "");
        message.asks_ults = in.value("asks_ults", false);
        message.ults = in.value("ults", "");
        message.answers_queries = in.value("answers_queries", false);
        message.address = in.value("address", "");
        message.graph = in.value("graph", "");
        message.join_ms = in.value("join_ms", std::uint64_t{0});
        message.sentence = in.value("sentence", "");
        message.because_of_other = in.value("because_of_other", false);
        if (in.contains("keys")) in["keys"].get_to(message.keys);
        if (in.contains("addresses")) in["addresses"].get_to(message.addresses);
        return message;
    } catch (const json::exception& wrong) {
        return {errc::invalid, wrong.what()};
    }
}

bool control_line::send(const control_message& message) noexcept {
    try {
        std::string text = encode(message);
        if (text.size() > limits::max_control_bytes && message.what == kind::report) {
            if (!message.answers_queries) return true;
            control_message less;  // That there is an answer counts, too.
            less.what = kind::report;
            less.answers_queries = true;
            if (!message.metrics.empty() || !message.drawing.empty()) less.report = message.report;
            return send(less);
        }
        std::string_view rest = text;
        while (!rest.empty()) {
            ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) continue;
            if (sent < 0) return false;
            rest.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    } catch (const std::exception&) {
        return false;
    }
}

std::optional<control_message> control_line::receive() {
    bool gone = false;
    return next(true, gone);
}

std::optional<control_message> control_line::try_receive(bool& gone) {
    return next(false, gone);
}

std::optional<control_message> control_line::next(bool wait, bool& gone) {
    for (;;) {
        std::size_t end = read_.find('\n', looked_);
        looked_ = end == std::string::npos ? read_.size() : 0;
        if (end != std::string::npos) {
            auto message = decode_control(std::string_view(read_).substr(0, end));
            read_.erase(0, end + 1);
            if (message) return std::move(message).value();
            nonsense_ = message.sentence();
            gone = true;
            return std::nullopt;
        }
        if (read_.size() >= limits::max_control_bytes) {
            nonsense_ = "a line of more than 8 MiB";
            gone = true;
            return std::nullopt;
        }
        char piece[16384];
        ssize_t got = ::recv(fd_, piece, sizeof piece, wait ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            read_.append(piece, static_cast<std::size_t>(got));
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            gone = true;
            return std::nullopt;
        } else if (errno == EAGAIN) {
            return std::nullopt;
        }
    }
}

}  // namespace amalgam::detail
