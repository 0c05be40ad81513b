#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "call/shown.hpp"

namespace amalgam::tool {

using json_object = nlohmann::ordered_json;

/// `--json`, for a command that tells facts. `lines`: of what there is an object on each line;
/// empty: one for all.
inline CLI::Option* add_json(CLI::App& command, bool& chosen, const std::string& lines = {}) {
    return command.add_flag(
        "--json", chosen,
        lines.empty() ? "Print JSON" : fmt::format("Print JSON, a line for each {}", lines));
}

/// "2027-01-31T12:00:00Z".
inline std::string utc(std::chrono::system_clock::time_point when) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    char text[32];
    text[std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)] = '\0';
    return text;
}

/// One value on one line, safe for a terminal. Bytes of peers that are no UTF-8 become U+FFFD.
inline void print_json(const json_object& what) {
    fmt::print("{}\n",
               shown_json(what.dump(-1, ' ', false, json_object::error_handler_t::replace)));
}

}  // namespace amalgam::tool
