#include "options.hpp"

#include <charconv>

#include <unistd.h>

namespace wordcount {
namespace {

constexpr const char* usage =
    "wordcount [--repeat N] [--top N] [--result FILE] [--figures FILE] [--progress] [--loop] "
    "FILE...";

bool read_number(const std::string& text, std::uint64_t& into) {
    auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), into);
    return wrong == std::errc{} && end == text.data() + text.size() && into > 0;
}

}  // namespace

std::string read_options(const std::vector<std::string>& arguments, options& into) {
    into.progress = ::isatty(STDERR_FILENO) != 0;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (word == "--") {  // The rest are files, whatever they look like.
            into.files.insert(into.files.end(), arguments.begin() + static_cast<long>(i) + 1,
                              arguments.end());
            break;
        }
        auto value = [&]() -> std::string {
            return i + 1 < arguments.size() ? arguments[++i] : std::string();
        };
        if (word == "--repeat" || word == "--top") {
            std::string number = value();
            if (!read_number(number, word == "--top" ? into.top : into.repeat))
                return word + " is \"" + number + "\", expected a number from 1; example: " + word +
                       " 100";
        } else if (word == "--result" || word == "--figures") {
            std::string file = value();
            if (file.empty())
                return word + " has no file, expected one; example: " + word + " out.txt";
            (word == "--result" ? into.result : into.figures) = file;
        } else if (word == "--progress") {
            into.progress = true;
        } else if (word == "--loop") {
            into.loop = true;
        } else if (word.size() > 1 && word[0] == '-') {
            return "the option " + word + " is not known, expected: " + usage;
        } else {
            into.files.push_back(word);
        }
    }
    if (into.files.empty()) return std::string("there is no file to count, expected: ") + usage;
    return {};
}

}  // namespace wordcount
