#include "options.hpp"

#include <charconv>
#include <map>

namespace heat {
namespace {

constexpr const char* usage =
    "heat [--rows N] [--columns N] [--iterations N] [--bands N] [--workers N] [--result FILE] "
    "[--picture FILE.pgm] [--sequential]";

/// A numeric option, and its limits.
struct number {
    std::size_t* into;
    std::size_t most;
};

bool read_number(const std::string& text, const number& wanted) {
    const char* end = text.data() + text.size();
    const auto [at, wrong] = std::from_chars(text.data(), end, *wanted.into);
    return wrong == std::errc{} && at == end && *wanted.into > 0 && *wanted.into <= wanted.most;
}

}  // namespace

std::string read_options(const std::vector<std::string>& arguments, options& into) {
    const std::map<std::string, number> numbers{{"--rows", {&into.size.rows, 10000}},
                                                {"--columns", {&into.size.columns, 10000}},
                                                {"--iterations", {&into.iterations, 1000000000}},
                                                {"--bands", {&into.bands, 10000}},
                                                {"--workers", {&into.workers, 1000}}};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        const auto value = [&]() -> std::string {
            return i + 1 < arguments.size() ? arguments[++i] : std::string();
        };
        if (const auto wanted = numbers.find(word); wanted != numbers.end()) {
            const std::string text = value();
            if (!read_number(text, wanted->second))
                return word + " is \"" + text + "\", expected a number from 1 to " +
                       std::to_string(wanted->second.most) + "; example: " + word + " 100";
        } else if (word == "--result" || word == "--picture") {
            const std::string file = value();
            if (file.empty())
                return word + " has no file, expected one; example: " + word + " heat.pgm";
            (word == "--result" ? into.result : into.picture) = file;
        } else if (word == "--sequential") {
            into.sequential = true;
        } else {
            return "the option " + word + " is not known, expected: " + usage;
        }
    }
    if (into.bands > into.size.rows)
        return std::to_string(into.bands) + " bands are too many for " +
               std::to_string(into.size.rows) +
               " rows, expected at most as many; example: --bands " +
               std::to_string(into.size.rows);
    if (into.workers > into.bands)
        return std::to_string(into.workers) + " workers are too many for " +
               std::to_string(into.bands) +
               " bands, expected at most as many; example: --workers " + std::to_string(into.bands);
    return {};
}

}  // namespace heat
