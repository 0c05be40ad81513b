#include <algorithm>

#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/otlp_trace.hpp>

namespace amalgam {

namespace {

std::string decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const int high =
            i + 2 < text.size() && text[i] == '%' ? detail::hex_digit(text[i + 1]) : -1;
        const int low = high >= 0 ? detail::hex_digit(text[i + 2]) : -1;
        if (low >= 0) i += 2;
        out += low >= 0 ? static_cast<char>(high * 16 + low) : text[i];
    }
    return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_baggage(std::string_view text) {
    std::vector<std::pair<std::string, std::string>> all;
    while (!text.empty()) {
        const std::string_view one = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), one.size() + 1));
        const std::size_t equals = one.find('=');
        const std::string_view key = detail::trimmed(one.substr(0, equals));
        if (equals == one.npos || key.empty()) continue;
        all.emplace_back(decoded(key), decoded(detail::trimmed(one.substr(equals + 1))));
    }
    return all;
}

}  // namespace amalgam
