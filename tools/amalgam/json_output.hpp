#pragma once

#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace amalgam::tool {

using json_object = nlohmann::ordered_json;

/// `--json`, for a command that tells facts. `lines`: of what there is an object on each line;
/// empty: one for all.
inline CLI::Option* add_json(CLI::App& command, bool& chosen, const std::string& lines = {}) {
    return command.add_flag(
        "--json", chosen,
        lines.empty() ? "Print JSON" : fmt::format("Print JSON, a line for each {}", lines));
}

/// One value on one line. Bytes of peers that are no UTF-8 become U+FFFD.
inline void print_json(const json_object& what) {
    fmt::print("{}\n", what.dump(-1, ' ', false, json_object::error_handler_t::replace));
}

}  // namespace amalgam::tool
