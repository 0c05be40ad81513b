#include "fabric/trust/keys/trusted_keys.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <amalgam/core/detail/text.hpp>

namespace amalgam::detail {
namespace {

constexpr std::string_view blanks = " \t\r\n";

/// The first line with its end, if it has one; the text then begins behind it.
std::string_view take_line(std::string_view& text) noexcept {
    const std::size_t end = text.find('\n');
    const std::string_view line = end == text.npos ? text : text.substr(0, end + 1);
    text.remove_prefix(line.size());
    return line;
}

/// What a line says; empty: nothing.
std::string_view said_by(std::string_view line) noexcept {
    line = line.substr(0, line.find('#'));
    const std::size_t first = line.find_first_not_of(blanks);
    if (first == line.npos) return {};
    return line.substr(first, line.find_last_not_of(blanks) + 1 - first);
}

/// As `openssl x509 -fingerprint` prints it: the hash of the whole certificate.
bool is_of_certificate(std::string_view text) noexcept {
    return text.find("Fingerprint=") != text.npos;
}

/// Of nothing but digits and colons; else 0.
std::size_t digits_in(std::string_view text) noexcept {
    std::size_t digits = 0;
    for (const char c : text) {
        if (c != ':' && hex_digit(c) < 0) return 0;
        digits += c != ':';
    }
    return digits;
}

}  // namespace

bool is_fingerprint(std::string_view text) noexcept {
    return text.size() == 64 &&
           std::all_of(text.begin(), text.end(), [](char c) { return hex_digit(c) >= 0; });
}

std::optional<key_fingerprint> fingerprint_in(std::string_view text) noexcept {
    key_fingerprint key;
    const std::size_t count = key.bytes.size();
    const bool has_colons = text.size() == 3 * count - 1;
    if (!has_colons && text.size() != 2 * count) return {};
    for (std::uint8_t& each : key.bytes) {
        const int high = hex_digit(text[0]), low = hex_digit(text[1]);
        if (high < 0 || low < 0) return {};
        each = static_cast<std::uint8_t>(high << 4 | low);
        text.remove_prefix(2);
        if (!has_colons || text.empty()) continue;
        if (text.front() != ':') return {};
        text.remove_prefix(1);
    }
    return key;
}

std::string why_no_fingerprint(std::string_view text) {
    if (is_of_certificate(text))
        return "is of a certificate, as `openssl x509` prints it, not of its key";
    const std::size_t digits = digits_in(text);
    if (digits == 0 || digits == 64) return "is not 64 hexadecimal digits";
    return fmt::format("has {} hexadecimal digits, not 64", digits);
}

bool is_meant_as_fingerprint(std::string_view text) noexcept {
    constexpr std::size_t most_serial_digits = 40;
    return is_of_certificate(text) || digits_in(text) > most_serial_digits ||
           (text.find(':') != text.npos && digits_in(text) == most_serial_digits);  // SHA-1.
}

result<std::vector<key_fingerprint>> trusted_keys_in(std::string_view text,
                                                     const std::string& called) {
    std::vector<key_fingerprint> all;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::string_view said = said_by(take_line(text));
        if (said.empty()) continue;
        const auto key = fingerprint_in(said);
        if (!key)
            return {errc::invalid,
                    fmt::format("line {} of {} is not the fingerprint of a key: it {}; expected {}",
                                number, called, why_no_fingerprint(said), kind_of_trusted_file)};
        if (all.size() == most_trusted_keys)
            return {errc::invalid,
                    fmt::format("{} has more than {} keys, the next one in line {}; expected "
                                "fewer, or an authority; example: amalgam key new lab --authority",
                                called, most_trusted_keys, number)};
        all.push_back(*key);
    }
    return all;
}

std::string with_trusted_key(std::string text, const key_fingerprint& key) {
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    return text + to_text(key) + '\n';
}

std::string without_trusted_key(std::string_view text, const key_fingerprint& key) {
    std::string rest;
    while (!text.empty()) {
        const std::string_view line = take_line(text);
        if (fingerprint_in(said_by(line)) != key) rest += line;
    }
    return rest;
}

}  // namespace amalgam::detail
