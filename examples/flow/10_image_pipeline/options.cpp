#include "options.hpp"

#include <charconv>
#include <map>

namespace image_pipeline {
namespace {

constexpr const char* usage =
    "image_pipeline FILE-OR-FOLDER... --into FOLDER [--workers N] [--sequential], or "
    "image_pipeline --generate N --into FOLDER [--side N]";

/// A numeric option, and its limits.
struct number {
    std::uint32_t* into;
    std::uint32_t most;
};

bool read_number(const std::string& text, const number& wanted) {
    const char* end = text.data() + text.size();
    const auto [at, wrong] = std::from_chars(text.data(), end, *wanted.into);
    return wrong == std::errc{} && at == end && *wanted.into > 0 && *wanted.into <= wanted.most;
}

}  // namespace

std::string read_options(const std::vector<std::string>& arguments, options& into) {
    const std::map<std::string, number> numbers{{"--workers", {&into.workers, 1000}},
                                                {"--generate", {&into.generate, 100000}},
                                                {"--side", {&into.side, 5000}}};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        const auto value = [&]() -> std::string {
            return i + 1 < arguments.size() ? arguments[++i] : std::string();
        };
        if (word == "--") {  // The rest are files, whatever they look like.
            into.inputs.insert(into.inputs.end(), arguments.begin() + static_cast<long>(i) + 1,
                               arguments.end());
            break;
        }
        if (const auto wanted = numbers.find(word); wanted != numbers.end()) {
            const std::string text = value();
            if (!read_number(text, wanted->second))
                return word + " is \"" + text + "\", expected a number from 1 to " +
                       std::to_string(wanted->second.most) + "; example: " + word + " 8";
        } else if (word == "--into") {
            into.into = value();
        } else if (word == "--sequential") {
            into.sequential = true;
        } else if (word.size() > 1 && word[0] == '-') {
            return "the option " + word + " is not known, expected: " + usage;
        } else {
            into.inputs.push_back(word);
        }
    }
    if (into.into.empty()) return std::string("there is no folder to write to, expected: ") + usage;
    if (into.inputs.empty() == (into.generate == 0))
        return std::string("expected either images or --generate: ") + usage;
    return {};
}

}  // namespace image_pipeline
