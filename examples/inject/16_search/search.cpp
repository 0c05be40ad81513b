// The code that travels: searches lines for a regular expression, where they are kept.
#include <cstdint>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/inject/injected.hpp>

/// The number of matching lines, and how many bytes of them were written to the caller's memory.
std::pair<std::uint64_t, std::uint64_t> search(const std::vector<std::string>& lines,
                                               const std::string& pattern,
                                               const am::attached_bulk& into) {
    const std::regex wanted(pattern);
    const am::injected_call<void(std::uint64_t)> tell("looked_at");  // A procedure of the sender.
    std::string found;
    std::uint64_t count = 0, looked_at = 0;
    for (const std::string& each : lines) {
        if (++looked_at % 10000 == 0) tell(looked_at);
        if (!std::regex_search(each, wanted)) continue;
        ++count;
        if (found.size() + each.size() < into.bytes()) found += each + '\n';
    }
    into.push(0, std::as_bytes(std::span(found)));
    return {count, found.size()};
}
AMALGAM_INJECT(search)
