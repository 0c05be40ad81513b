#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <amalgam/tasks/extension/ult_snapshot.hpp>

namespace amalgam::detail {

namespace {

constexpr std::size_t most_threads = 4096;
constexpr std::size_t most_mappings = 1u << 20;

bool read_hex(std::string_view text, std::uint64_t& into) {
    if (text.starts_with("0x")) text.remove_prefix(2);
    return std::from_chars(text.data(), text.data() + text.size(), into, 16).ec == std::errc{};
}

std::string line_of(const std::filesystem::path& file) {
    std::string line;
    std::getline(std::ifstream(file), line);
    return line;
}

/// The stack pointer in "270 0xfb 0x7ffe… … 0x7ffe… 0x7f46…", before the last word; "running" has
/// none.
bool stack_pointer_in(std::string_view line, std::uint64_t& into) {
    const std::size_t last = line.rfind(' ');
    if (last == std::string_view::npos || last == 0) return false;
    line = line.substr(0, last);
    const std::size_t before = line.rfind(' ');
    return before != std::string_view::npos && read_hex(line.substr(before + 1), into);
}

}  // namespace

sleeping_threads::sleeping_threads() {
    namespace fs = std::filesystem;
    std::vector<std::pair<std::uint64_t, thread>> pointers;
    std::error_code failed;
    for (fs::directory_iterator each("/proc/self/task", failed), end;
         !failed && each != end && pointers.size() < most_threads; each.increment(failed)) {
        std::uint64_t pointer = 0;
        if (!stack_pointer_in(line_of(each->path() / "syscall"), pointer)) continue;
        thread one;
        const std::string id = each->path().filename();
        std::from_chars(id.data(), id.data() + id.size(), one.id);
        one.name = line_of(each->path() / "comm");
        pointers.emplace_back(pointer, std::move(one));
    }
    std::sort(pointers.begin(), pointers.end(),
              [](const auto& one, const auto& other) { return one.first < other.first; });
    // "7ffea1d89000-7ffea1daa000 rw-p 00000000 00:00 0    [stack]"
    std::ifstream mappings("/proc/self/maps");
    std::string line;
    for (std::size_t i = 0; i < most_mappings && std::getline(mappings, line); ++i) {
        const std::size_t dash = line.find('-'), space = line.find(' ');
        std::uint64_t low = 0, high = 0;
        if (dash == std::string::npos || space == std::string::npos || dash > space ||
            !read_hex(std::string_view(line).substr(0, dash), low) ||
            !read_hex(std::string_view(line).substr(dash + 1, space - dash - 1), high)) {
            continue;
        }
        const auto in = std::lower_bound(
            pointers.begin(), pointers.end(), low,
            [](const auto& one, std::uint64_t address) { return one.first < address; });
        // Two in one mapping: they are no stacks of threads.
        if (in == pointers.end() || in->first >= high) continue;
        if (in + 1 != pointers.end() && (in + 1)->first < high) continue;
        stacks_.push_back({low >> 12, high >> 12, in->second});
    }
}

sleeping_threads::thread sleeping_threads::at(std::uint32_t page) const {
    for (const stack& each : stacks_) {
        const auto low = static_cast<std::uint32_t>(each.first_page);
        if (page - low < static_cast<std::uint32_t>(each.end_page - each.first_page))
            return each.whose;
    }
    return {};
}

}  // namespace amalgam::detail
