#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace amalgam::tool_testing {

/// A JSON value from each line.
inline std::vector<nlohmann::json> lines_of_json(const std::string& text) {
    std::vector<nlohmann::json> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        all.push_back(nlohmann::json::parse(line, nullptr, false));
    return all;
}

}  // namespace amalgam::tool_testing
