#include "rpc/http/http_place.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

namespace amalgam::detail {
namespace {

[[noreturn]] void refuse(std::string_view address) {
    throw error(errc::invalid,
                fmt::format("\"{}\" is no address to listen at, expected an IP address and a port; "
                            "example: 127.0.0.1:9464",
                            printable_name(address)));
}

/// Sets `where` and `is_loopback`.
void parse_address(std::string_view address, http_place& out) {
    const std::size_t colon = address.rfind(':');
    if (colon == address.npos) refuse(address);
    const std::string_view digits = address.substr(colon + 1);
    std::uint16_t port = 0;
    const auto [stop, wrong] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (wrong != std::errc{} || stop != digits.data() + digits.size()) refuse(address);
    std::string host(address.substr(0, colon));
    if (host == "localhost") host = "127.0.0.1";
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        ::sockaddr_in6 six{};
        six.sin6_family = AF_INET6;
        six.sin6_port = htons(port);
        if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &six.sin6_addr) != 1)
            refuse(address);
        out.is_loopback = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
        out.where.size = sizeof six;
        std::memcpy(&out.where.bytes, &six, sizeof six);
    } else {
        ::sockaddr_in four{};
        four.sin_family = AF_INET;
        four.sin_port = htons(port);
        if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1) refuse(address);
        out.is_loopback = ntohl(four.sin_addr.s_addr) >> 24 == 127;
        out.where.size = sizeof four;
        std::memcpy(&out.where.bytes, &four, sizeof four);
    }
}

/// Without brackets and port.
std::string host_of(const listen_address& where) {
    char host[INET6_ADDRSTRLEN] = {};
    if (where.bytes.ss_family == AF_INET6) {
        ::sockaddr_in6 six;
        std::memcpy(&six, &where.bytes, sizeof six);
        ::inet_ntop(AF_INET6, &six.sin6_addr, host, sizeof host);
    } else {
        ::sockaddr_in four;
        std::memcpy(&four, &where.bytes, sizeof four);
        ::inet_ntop(AF_INET, &four.sin_addr, host, sizeof host);
    }
    return host;
}

unsigned port_of(const listen_address& where) {
    ::sockaddr_in four;  // The port is at the same place in both.
    static_assert(offsetof(::sockaddr_in, sin_port) == offsetof(::sockaddr_in6, sin6_port));
    std::memcpy(&four, &where.bytes, sizeof four);
    return ntohs(four.sin_port);
}

// ---- tokens

constexpr std::size_t least_token_bytes = 16, most_token_bytes = 256;

[[noreturn]] void refuse_token(const std::string& path, errc code, std::string_view why) {
    throw error(code, fmt::format("the token in {} {}", printable_name(path), why));
}

/// A file that is there whole or not at all; nothing if there is one already.
void make_token_file(const std::string& path) {
    std::string fresh = path + ".XXXXXX";
    const unique_fd file(::mkostemp(fresh.data(), O_CLOEXEC));  // Mode 0600.
    if (!file)
        refuse_token(path, errc::not_found,
                     fmt::format("cannot be made ({}), expected a file in a folder of yours",
                                 std::strerror(errno)));
    const std::string text = new_token() + "\n";
    const bool whole =
        ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int why = whole && ::link(fresh.c_str(), path.c_str()) == 0 ? 0 : whole ? errno : EIO;
    ::unlink(fresh.c_str());
    if (why != 0 && why != EEXIST)
        refuse_token(
            path, errc::not_found,
            fmt::format("cannot be written ({}), expected room for it", std::strerror(why)));
}

std::string read_token(const std::string& path) {
    unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file && errno == ENOENT) {
        make_token_file(path);
        file.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    }
    struct ::stat about {};
    if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode))
        refuse_token(path, errc::not_found, "cannot be read, expected a file of one line");
    if ((about.st_mode & 077) != 0 || (about.st_uid != ::geteuid() && about.st_uid != 0))
        refuse_token(path, errc::denied,
                     fmt::format("can be read by others, expected a file of yours with mode 0600; "
                                 "example: chmod 600 {}",
                                 printable_name(path)));
    char text[most_token_bytes + 2];
    const ssize_t got = ::read(file.get(), text, sizeof text);
    const std::string_view token =
        trimmed({text, static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
    const std::string_view line = token.substr(0, token.find('\n'));
    // It is part of URLs, and of headers.
    const bool fits = std::all_of(line.begin(), line.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_';
    });
    if (!fits || line.size() < least_token_bytes || line.size() > most_token_bytes)
        refuse_token(path, errc::invalid,
                     "is none, expected a line of 16 to 256 letters and digits, which is made "
                     "where there is no file");
    return std::string(line);
}

void take_options(std::string_view options, http_place& out, std::string& token_file) {
    while (!options.empty()) {
        const std::size_t end = std::min(options.find('&'), options.size());
        const std::string_view one = options.substr(0, end);
        options.remove_prefix(std::min(end + 1, options.size()));
        const std::size_t equals = std::min(one.find('='), one.size());
        const std::string_view key = one.substr(0, equals);
        const std::string_view value = one.substr(std::min(equals + 1, one.size()));
        std::string* const into = key == "credentials" ? &out.credentials
                                  : key == "token"     ? &token_file
                                                       : nullptr;
        if (into == nullptr || value.empty() || !into->empty())
            throw error(errc::invalid,
                        fmt::format("\"{}\" is no option of an address to listen at, expected "
                                    "credentials=KEY or token=FILE, each once; example: "
                                    "\"0.0.0.0:9464?credentials=node7&token=numbers.token\"",
                                    printable_name(one)));
        into->assign(value);
    }
}

}  // namespace

std::string new_token() {
    return fmt::format("{:016x}{:016x}", random_u64(), random_u64());
}

bool same_token(std::string_view a, std::string_view b) noexcept {
    if (a.size() != b.size()) return false;
    unsigned differ = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
        differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return differ == 0;
}

std::string text_of(const listen_address& where) {
    const std::string host = host_of(where);
    return where.bytes.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host, port_of(where))
                                             : fmt::format("{}:{}", host, port_of(where));
}

std::string host_for_clients(const listen_address& where, const std::vector<std::string>& hosts) {
    const std::string own = host_of(where);
    std::string name = own;
    if (!hosts.empty() && std::find(hosts.begin(), hosts.end(), own) == hosts.end()) {
        const auto known = std::find_if_not(hosts.begin(), hosts.end(), &is_loopback_host);
        name = known == hosts.end() ? hosts.front() : *known;
    }
    return fmt::format("{}:{}", name.find(':') == name.npos ? name : "[" + name + "]",
                       port_of(where));
}

http_place parse_http_place(std::string_view text, bool has_own_token) {
    const std::size_t mark = std::min(text.find('?'), text.size());
    const std::string_view address = text.substr(0, mark);
    http_place out;
    parse_address(address, out);
    std::string token_file;
    take_options(text.substr(std::min(mark + 1, text.size())), out, token_file);
    const bool has_token = has_own_token || !token_file.empty();
    if (!out.is_loopback && (out.credentials.empty() || !has_token)) {
        const char* const token = has_own_token ? "" : "&token=numbers.token";
        throw error(errc::denied,
                    fmt::format("other hosts can reach \"{}\", expected a loopback address, or a "
                                "key to encrypt with{}; example: 127.0.0.1:9464 or "
                                "\"{}?credentials=node7{}\"",
                                printable_name(address),
                                has_own_token ? "" : " and a token by which clients are known",
                                printable_name(address), token));
    }
    if (!token_file.empty()) out.token = read_token(token_file);
    return out;
}

}  // namespace amalgam::detail
