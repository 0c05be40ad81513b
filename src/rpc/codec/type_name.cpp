#include <array>
#include <utility>

#include <amalgam/rpc/type_name.hpp>

namespace amalgam::detail {

namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
        text.replace(at, what.size(), by);
    }
}

}  // namespace

// GCC writes "std::string spelled() [with T = app::point; std::string = …]", clang
// "std::string spelled() [T = app::point]".
std::string tidy_type_name(std::string_view pretty_function) {
    constexpr std::string_view mark = "T = ";
    std::size_t begin = pretty_function.find(mark);
    if (begin == std::string_view::npos) return std::string(pretty_function);
    begin += mark.size();
    std::size_t depth = 0;
    std::size_t end = begin;
    for (; end < pretty_function.size(); ++end) {
        const char c = pretty_function[end];
        if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
        if (depth == 0 && (c == ';' || c == ']')) break;
        if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
    }
    std::string name(pretty_function.substr(begin, end - begin));
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> spellings{
        {{"(anonymous namespace)", "{anonymous}"},
         {"<unnamed>", "{anonymous}"},
         {", ", ","},
         {" >", ">"}}};
    for (const auto& [what, by] : spellings)
        replace_all(name, what, by);
    return name;
}

std::string number_name(char kind, std::size_t bytes) {
    return kind + std::to_string(bytes * 8);
}

std::string ratio_name(std::intmax_t num, std::intmax_t den) {
    return std::to_string(num) + "/" + std::to_string(den);
}

}  // namespace amalgam::detail
