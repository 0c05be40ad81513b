#include "fabric/trust/keys/pre_shared_keys.hpp"

#include <algorithm>
#include <new>

#include <fmt/format.h>
#include <openssl/rand.h>

#include <amalgam/core/detail/text.hpp>

#include "fabric/trust/keys/trusted_keys.hpp"

namespace amalgam::detail {
bool is_letter_or_digit(char c) noexcept {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

namespace {

/// The first line with its end, if it has one.
std::string_view first_line(std::string_view text) noexcept {
    const std::size_t end = text.find('\n');
    return end == text.npos ? text : text.substr(0, end + 1);
}

std::string_view name_in(std::string_view line) noexcept {
    return line.substr(0, line.find(':'));
}

secret_text joined(std::string_view first, std::string_view second) {
    secret_text all(first.size() + second.size());
    std::copy(second.begin(), second.end(), std::copy(first.begin(), first.end(), all.data()));
    all.set_size(all.capacity());
    return all;
}

}  // namespace

bool is_key_name(std::string_view name) noexcept {
    return !name.empty() && name.size() <= pre_shared_keys::most_name_bytes &&
           is_letter_or_digit(name.front()) &&
           !is_fingerprint(name) &&  // The name of who is trusted by his key alone.
           std::all_of(name.begin(), name.end(), [](char c) {
               return is_letter_or_digit(c) ||
                      std::string_view("._@-").find(c) != std::string::npos;
           });
}

result<pre_shared_keys> pre_shared_keys::in_file(const std::string& path) {
    const auto text = read_secret_file(path, kind_of_pre_shared_file);
    if (!text) return text.why();
    return in(text->text(), fmt::format("\"{}\"", path));
}

result<pre_shared_keys> pre_shared_keys::in(std::string_view text, const std::string& called) {
    pre_shared_keys made(text.size());
    std::size_t number = 0;
    while (!text.empty()) {
        const std::string_view line = first_line(text);
        text.remove_prefix(line.size());
        if (const auto done = made.take(line, ++number, called); !done) return done.why();
    }
    if (!made.all_.empty()) return made;
    return {errc::invalid, fmt::format("{} has no pre-shared key, expected a line NAME:KEY; "
                                       "example: amalgam key new node7 --shared",
                                       called)};
}

result<void> pre_shared_keys::take(std::string_view line, std::size_t number,
                                   const std::string& called) {
    // Who copies a file may have come half way.
    if (!line.ends_with('\n'))
        return {errc::invalid,
                fmt::format("{} ends within line {}, expected whole lines", called, number)};
    line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view name = name_in(line);
    const std::string_view digits = line.substr(std::min(line.size(), name.size() + 1));
    const bool is_hexadecimal =
        std::all_of(digits.begin(), digits.end(), [](char c) { return hex_digit(c) >= 0; });
    if (!is_key_name(name) || !is_hexadecimal || digits.size() % 2 != 0 ||
        digits.size() < 2 * least_bytes || digits.size() > 2 * most_bytes)
        return {errc::invalid,
                fmt::format("line {} of {} is not a pre-shared key, expected NAME:KEY, a name of "
                            "letters, digits and ._@- that is no fingerprint, and {} to {} "
                            "hexadecimal digits; example: "
                            "amalgam key new node7 --shared",
                            number, called, 2 * least_bytes, 2 * most_bytes)};
    if (find(name) != nullptr)
        return {errc::invalid, fmt::format("{} has two keys of the name {}, expected one; the "
                                           "second is in line {}",
                                           called, name, number)};
    if (all_.size() == most_keys)
        return {errc::invalid,
                fmt::format("{} has more than {} pre-shared keys; expected fewer, or "
                            "certificates; example: amalgam key new lab --authority",
                            called, most_keys)};
    const std::size_t before = secrets_.text().size();
    auto* const at = reinterpret_cast<unsigned char*>(secrets_.data()) + before;
    for (std::size_t i = 0; i < digits.size() / 2; ++i)
        at[i] = static_cast<unsigned char>(hex_digit(digits[2 * i]) << 4 |
                                           hex_digit(digits[2 * i + 1]));
    secrets_.set_size(before + digits.size() / 2);
    all_.push_back({std::string(name), {at, digits.size() / 2}});
    return {};
}

const pre_shared_keys::key* pre_shared_keys::find(std::string_view name) const noexcept {
    const auto at =
        std::find_if(all_.begin(), all_.end(), [&](const key& each) { return each.name == name; });
    return at == all_.end() ? nullptr : &*at;
}

secret_text new_pre_shared_key(std::string_view name) {
    secret_text bytes(pre_shared_keys::made_bytes);
    if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()),
                   static_cast<int>(bytes.capacity())) != 1)
        throw std::bad_alloc();
    secret_text line(name.size() + 1 + 2 * bytes.capacity() + 1);
    char* at = std::copy(name.begin(), name.end(), line.data());
    *at++ = ':';
    constexpr std::string_view digits = "0123456789abcdef";
    for (std::size_t i = 0; i < bytes.capacity(); ++i) {
        const auto byte = static_cast<unsigned char>(bytes.data()[i]);
        *at++ = digits[byte >> 4];
        *at++ = digits[byte & 15];
    }
    *at = '\n';
    line.set_size(line.capacity());
    return line;
}

std::string_view own_line(std::string_view text) noexcept {
    return first_line(text);
}

secret_text with_own(std::string_view text, std::string_view line) {
    text.remove_prefix(first_line(text).size());
    return joined(line, text);
}

secret_text with_line(std::string_view text, std::string_view line) {
    return joined(text, line);
}

secret_text without_line(std::string_view text, std::string_view name) {
    std::string_view rest = text;
    while (!rest.empty() && name_in(first_line(rest)) != name)
        rest.remove_prefix(first_line(rest).size());
    const std::string_view front = text.substr(0, text.size() - rest.size());
    rest.remove_prefix(first_line(rest).size());
    return joined(front, rest);
}

}  // namespace amalgam::detail
