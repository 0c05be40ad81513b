#include "flow/launcher/remote_frames.hpp"

#include <algorithm>
#include <charconv>

#include "flow/limits.hpp"

namespace amalgam::detail {
namespace {

constexpr std::size_t head_bytes = 5;

std::optional<std::size_t> number(std::string_view text) {
    std::size_t value = 0;
    auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (wrong != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

void add_frame(output_queue& into, remote_frame_kind kind, std::string_view bytes) {
    std::string head(1, static_cast<char>(kind));
    for (unsigned shift = 0; shift < 32; shift += 8)
        head += static_cast<char>(bytes.size() >> shift);
    into.add(head);
    into.add(bytes);
}

std::optional<remote_frame> remote_frame_reader::next() {
    if (!greeting_.empty()) {
        const std::size_t at = read_.find(greeting_);
        if (at == std::string::npos) {
            nonsense_ = read_.size() > limits::max_remote_frame_bytes;
            return std::nullopt;
        }
        read_.erase(0, at + greeting_.size());
        greeting_ = {};
    }
    if (nonsense_ || read_.size() < head_bytes) return std::nullopt;
    std::size_t length = 0;
    for (unsigned i = 0; i < 4; ++i)
        length |= std::size_t{static_cast<unsigned char>(read_[1 + i])} << (8 * i);
    const auto kind = static_cast<unsigned char>(read_[0]);
    if (kind > static_cast<unsigned char>(remote_frame_kind::alive) ||
        length > limits::max_remote_frame_bytes) {
        nonsense_ = true;
        return std::nullopt;
    }
    if (read_.size() < head_bytes + length) return std::nullopt;
    remote_frame found{static_cast<remote_frame_kind>(kind), read_.substr(head_bytes, length)};
    read_.erase(0, head_bytes + length);
    return found;
}

// Zero-terminated texts: the fields, the number of words of the command, those words, and the
// environment.
std::string encode(const remote_start& start) {
    std::vector<std::string> words{start.folder,
                                   start.config,
                                   start.group,
                                   std::to_string(start.replica),
                                   std::to_string(start.silence_ms),
                                   std::to_string(start.command.size())};
    words.insert(words.end(), start.command.begin(), start.command.end());
    words.insert(words.end(), start.environment.begin(), start.environment.end());
    std::string bytes;
    for (const std::string& word : words)
        bytes.append(word).push_back('\0');
    return bytes;
}

std::optional<remote_start> decode_remote_start(std::string_view bytes) {
    std::vector<std::string> words;
    for (std::size_t end; (end = bytes.find('\0')) != std::string_view::npos;) {
        words.emplace_back(bytes.substr(0, end));
        bytes.remove_prefix(end + 1);
    }
    if (!bytes.empty() || words.size() < 6) return std::nullopt;
    const auto replica = number(words[3]), silence = number(words[4]), count = number(words[5]);
    if (!replica || !silence || !count || *count > words.size() - 6) return std::nullopt;
    const auto environment = words.begin() + 6 + static_cast<std::ptrdiff_t>(*count);
    return remote_start{.folder = words[0],
                        .config = words[1],
                        .group = words[2],
                        .replica = *replica,
                        .silence_ms = *silence,
                        .command = {words.begin() + 6, environment},
                        .environment = {environment, words.end()}};
}

std::vector<std::string> carried_environment(const char* const* environment) {
    static constexpr std::string_view of_the_login[] = {
        "HOME", "USER", "LOGNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "HOSTNAME", "DISPLAY"};
    static constexpr std::string_view of_the_session[] = {"SSH_", "XDG_", "DBUS_"};
    std::vector<std::string> carried;
    for (; *environment != nullptr; ++environment) {
        const std::string_view one = *environment;
        const std::string_view name = one.substr(0, one.find('='));
        const bool stays =
            std::count(std::begin(of_the_login), std::end(of_the_login), name) > 0 ||
            std::any_of(std::begin(of_the_session), std::end(of_the_session),
                        [name](std::string_view start) { return name.starts_with(start); });
        if (!stays && !name.empty()) carried.emplace_back(one);
    }
    return carried;
}

}  // namespace amalgam::detail
