#include <array>
#include <cerrno>
#include <cstdlib>

#include <locale.h>

#include <amalgam/core/detail/number_text.hpp>

namespace amalgam::detail {
namespace {

/// strtod() and its like take more than std::from_chars() does: blanks, a plus, hexadecimal digits.
bool is_plain_decimal(std::string_view text) noexcept {
    if (!text.empty() && text.front() == '-') text.remove_prefix(1);
    if (text.empty() || text.find_first_of("xX(") != text.npos) return false;
    const char first = text.front();
    return first == '.' || (first >= '0' && first <= '9') || first == 'i' || first == 'I' ||
           first == 'n' || first == 'N';
}

template <typename T>
bool read_by(std::string_view text, T& into, T (*parse)(const char*, char**, ::locale_t)) noexcept {
    std::array<char, 1101> copy{};  // A double has up to 1077 characters.
    if (!is_plain_decimal(text) || text.size() >= copy.size()) return false;
    text.copy(copy.data(), text.size());
    // Of the program's own locale the comma would be the point.
    static const ::locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
    if (plain == nullptr) return false;
    const int kept = errno;
    errno = 0;
    char* stop = nullptr;
    const T value = parse(copy.data(), &stop, plain);
    const bool fits = errno != ERANGE;
    errno = kept;
    if (!fits || stop != copy.data() + text.size()) return false;
    into = value;
    return true;
}

}  // namespace

bool read_floating(std::string_view text, float& into) noexcept {
    return read_by(text, into, ::strtof_l);
}
bool read_floating(std::string_view text, double& into) noexcept {
    return read_by(text, into, ::strtod_l);
}
bool read_floating(std::string_view text, long double& into) noexcept {
    return read_by(text, into, ::strtold_l);
}

}  // namespace amalgam::detail
