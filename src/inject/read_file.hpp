#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace amalgam::detail {

/// All of a file; nothing: it cannot be read, and errno says why.
inline std::optional<std::vector<std::byte>> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const auto* const start = reinterpret_cast<const std::byte*>(text.data());
    return std::vector<std::byte>(start, start + text.size());
}

}  // namespace amalgam::detail
