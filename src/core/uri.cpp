#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <amalgam/core/uri.hpp>

namespace amalgam {
namespace {

constexpr std::size_t max_label_bytes = 63;  // Of a host name: RFC 1035.
constexpr std::size_t max_host_bytes = 253;

bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}
bool is_alpha(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_alnum(char c) noexcept {
    return is_alpha(c) || is_digit(c);
}
bool is_graph(char c) noexcept {
    return c > 0x20 && c < 0x7f;
}

template <typename Fits>
bool all(std::string_view text, Fits fits) noexcept {
    return std::all_of(text.begin(), text.end(), fits);
}

/// A protocol without the "+tls" at its end.
std::string_view without_tls(std::string_view protocol) noexcept {
    constexpr std::string_view tls = "+tls";
    if (protocol.ends_with(tls)) protocol.remove_suffix(tls.size());
    return protocol;
}

bool all_of(std::string_view text, std::string_view extra) noexcept {
    return all(text, [=](char c) { return is_alnum(c) || extra.find(c) != extra.npos; });
}

/// Makes `text` printable in a sentence: control bytes as \xNN, long text shortened in the middle.
std::string shown(std::string_view text) {
    constexpr std::size_t most = 64;
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.size() > most && i == most / 2) {
            out += "...";
            i = text.size() - most / 2;
        }
        char c = text[i];
        if (c == ' ' || is_graph(c)) {
            out += c;
        } else {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        }
    }
    return out;
}

/// What follows "://".
enum class rest_of : std::uint8_t { required_name, optional_name, host, device_host, rank, other };

/// The syntax of one scheme.
struct form {
    std::string_view scheme;
    std::string_view shape;    ///< For error sentences.
    std::string_view example;  ///< A valid URI.
    rest_of rest;
    bool has_protocol;
    std::array<std::string_view, 2> protocols{};  ///< The only valid ones, if any are listed.
    std::string_view optional_protocol{};         ///< Of a scheme that needs none.
};

constexpr std::array forms{
    form{"loop", "loop://NAME", "loop://server", rest_of::required_name, false},
    form{"shm", "shm://[NAME]", "shm://server", rest_of::optional_name, false},
    form{"tcp", "tcp://[HOST][:PORT]", "tcp://127.0.0.1:7000", rest_of::host, false, {}, "tls"},
    form{"ucx", "ucx+PROTO://[DEVICE/]HOST:PORT", "ucx+tcp://127.0.0.1:7000", rest_of::device_host,
         true},
    form{"ofi", "ofi+PROTO://[DOMAIN/]HOST:PORT", "ofi+tcp://127.0.0.1:7000", rest_of::device_host,
         true},
    form{"mpi",
         "mpi+dynamic or mpi+static[://RANK[:PORT]]",
         "mpi+static://1",
         rest_of::rank,
         true,
         {"dynamic", "static"}},
};

constexpr form other_form{"", "SCHEME://ADDRESS", "tcp://127.0.0.1:7000", rest_of::other, true};

const form& form_of(std::string_view scheme) noexcept {
    auto at =
        std::find_if(forms.begin(), forms.end(), [&](const form& f) { return f.scheme == scheme; });
    return at == forms.end() ? other_form : *at;
}

/// One pass over the text. Every step returns false after recording what is wrong.
class parser {
public:
    explicit parser(std::string_view text) : text_(text) {}

    result<uri> run() {
        if (!parse()) return {errc::invalid, std::move(sentence_)};
        return std::move(out_);
    }

private:
    /// The three ways a part can be bad. All error sentences come from here.
    bool missing(std::string_view part, std::string_view expected) {
        return refuse(fmt::format("the {} is missing, expected {}", part, expected));
    }
    bool wrong(std::string_view part, std::string_view text, std::string_view expected) {
        return refuse(fmt::format("the {} \"{}\" is not {}", part, shown(text), expected));
    }
    bool surplus(std::string_view part, std::string_view text) {
        return refuse(
            fmt::format("unexpected {} \"{}\", expected {}", part, shown(text), form_->shape));
    }
    bool refuse(std::string_view why) {
        sentence_ = fmt::format("uri \"{}\": {}; example: {}", shown(text_), why, form_->example);
        return false;
    }

    bool parse() {
        if (text_.empty()) return missing("scheme", form_->shape);
        if (text_.size() > uri::max_bytes) {
            return wrong("length", std::to_string(text_.size()),
                         fmt::format("at most {} bytes", uri::max_bytes));
        }
        std::string_view rest = text_;
        if (std::size_t question = rest.find('?'); question != rest.npos) {
            options_ = rest.substr(question);
            rest = rest.substr(0, question);
        }
        std::size_t colon = rest.find("://");
        std::string_view scheme = rest.substr(0, colon);
        rest = colon == rest.npos ? std::string_view{} : rest.substr(colon + 3);
        return parse_scheme(scheme, colon != text_.npos) && parse_rest(rest) && parse_options();
    }

    bool parse_scheme(std::string_view text, bool slashes) {
        std::size_t plus = text.find('+');
        std::string_view scheme = text.substr(0, plus);
        if (scheme.empty()) return missing("scheme", "a transport's name before \"://\"");
        if (!is_alpha(scheme.front()) || !all_of(scheme, "-.")) {
            return wrong("scheme", scheme, "a transport's name (letters, digits, \"-\", \".\")");
        }
        std::transform(scheme.begin(), scheme.end(), std::back_inserter(out_.scheme),
                       [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
        std::string_view protocol;
        if (plus != text.npos) protocol = text.substr(plus + 1);
        if (out_.scheme == "na") return parse_na(protocol, slashes);
        form_ = &form_of(out_.scheme);
        if (!parse_protocol(protocol, plus != text.npos)) return false;
        return slashes || form_->rest == rest_of::rank || missing_slashes();
    }

    /// Mercury's name for shared memory.
    bool parse_na(std::string_view protocol, bool slashes) {
        form_ = &form_of("shm");
        out_.scheme = "shm";
        if (protocol.empty()) return missing("protocol", "na+sm");
        if (protocol != "sm") return wrong("protocol", protocol, "sm, the only protocol of na");
        return slashes || missing_slashes();
    }

    bool missing_slashes() { return missing("\"://\"", form_->shape); }

    bool parse_protocol(std::string_view text, bool plus) {
        bool optional = form_ == &other_form && !plus;
        if (!text.empty() && text == form_->optional_protocol) {
            out_.protocol = text;
            return true;
        }
        if (!form_->has_protocol && plus) {
            return surplus("protocol", fmt::format("+{}", text));
        }
        if (!form_->has_protocol || optional) return true;
        if (text.empty()) return missing("protocol", form_->shape);
        const std::string_view plain = without_tls(text);
        if (plain.empty() || !all_of(plain, "_-,;.")) {
            return wrong("protocol", text, "a name (letters, digits, \"_-,;.\")");
        }
        const auto& known = form_->protocols;
        if (!known[0].empty() && std::find(known.begin(), known.end(), plain) == known.end()) {
            return wrong("protocol", text, fmt::format("{} or {}", known[0], known[1]));
        }
        out_.protocol = text;
        return true;
    }

    bool parse_rest(std::string_view rest) {
        switch (form_->rest) {
            case rest_of::rank:
                return rest.empty() || parse_rank(rest);
            case rest_of::device_host:
                return parse_device(rest);
            case rest_of::host:
                return parse_authority(rest);
            case rest_of::other:
                return parse_opaque(rest);
            case rest_of::required_name:
            case rest_of::optional_name:
                break;
        }
        if (rest.empty() && form_->rest == rest_of::required_name) {
            return missing("name", form_->shape);
        }
        if (!all_of(rest, "._-") || rest.size() > uri::max_name_bytes) {
            return wrong("name", rest,
                         fmt::format("a name of at most {} letters, digits, \".\", \"_\" or \"-\"",
                                     uri::max_name_bytes));
        }
        out_.name = rest;
        return true;
    }

    bool parse_opaque(std::string_view rest) {
        if (!all(rest, is_graph)) return wrong("address", rest, "printable ASCII without spaces");
        out_.name = rest;
        return true;
    }

    bool parse_device(std::string_view rest) {
        std::size_t slash = rest.find('/');
        if (slash == rest.npos) return parse_authority(rest);
        std::string_view device = rest.substr(0, slash);
        std::string_view part = out_.scheme == "ofi" ? "domain" : "device";
        if (device.empty()) return missing(part, "a name before \"/\"");
        if (!all_of(device, "._-:")) {
            return wrong(part, device, "a name (letters, digits, \"._-:\")");
        }
        out_.device = device;
        return parse_authority(rest.substr(slash + 1));
    }

    /// RANK[:[PORT]], of mpi+static.
    bool parse_rank(std::string_view text) {
        if (without_tls(out_.protocol) != "static") return surplus("address", text);
        const std::size_t colon = std::min(text.find(':'), text.size());
        const std::string_view digits = text.substr(0, colon);
        std::int32_t rank = -1;
        auto [end, bad] = std::from_chars(digits.begin(), digits.end(), rank);
        if (bad != std::errc{} || end != digits.end() || rank < 0) {
            return wrong("rank", digits, "a non-negative number");
        }
        out_.host = std::to_string(rank);
        return parse_port(text.substr(colon));
    }

    /// [HOST][:[PORT]]
    bool parse_authority(std::string_view text) {
        if (std::size_t slash = text.find('/'); slash != text.npos) {
            return surplus("path", text.substr(slash));
        }
        if (text.starts_with('[')) {
            std::size_t end = text.find(']');
            if (end == text.npos)
                return missing("\"]\"", "an IPv6 address in brackets, as in [::1]");
            if (!parse_ipv6(text.substr(1, end - 1))) return false;
            text.remove_prefix(end + 1);
            if (!text.empty() && text.front() != ':') {
                return wrong("text after \"]\"", text, "a port, as in :7000");
            }
            return parse_port(text);
        }
        std::size_t colon = text.find(':');
        if (colon != text.npos && text.find(':', colon + 1) != text.npos) {
            return wrong("host", text,
                         "a host and one port (an IPv6 address needs brackets: [::1])");
        }
        std::string_view port = colon == text.npos ? std::string_view{} : text.substr(colon);
        return parse_host(text.substr(0, colon)) && parse_port(port);
    }

    bool parse_ipv6(std::string_view text) {
        std::size_t percent = text.find('%');
        std::string address(text.substr(0, percent));  // inet_pton() needs a terminated string.
        in6_addr binary{};
        char shortest[INET6_ADDRSTRLEN];
        if (address.find('\0') != address.npos ||
            ::inet_pton(AF_INET6, address.c_str(), &binary) != 1 ||
            ::inet_ntop(AF_INET6, &binary, shortest, sizeof shortest) == nullptr) {
            return wrong("host", text, "an IPv6 address");
        }
        out_.host = shortest;
        if (percent == text.npos) return true;
        std::string_view zone = text.substr(percent + 1);
        if (zone.empty()) return missing("zone", "an interface after \"%\", as in [fe80::1%eth0]");
        if (!all_of(zone, "._-") || zone.size() > 15) {
            return wrong("zone", zone, "an interface's name of at most 15 bytes");
        }
        out_.host += '%';
        out_.host += zone;
        return true;
    }

    /// A name, an interface or an IPv4 address. Only the machine can tell the first two apart.
    bool parse_host(std::string_view text) {
        if (text.empty()) return true;
        bool numeric = all(text, [](char c) { return is_digit(c) || c == '.'; });
        if (numeric) {
            std::string terminated(text);
            in_addr binary{};
            if (::inet_pton(AF_INET, terminated.c_str(), &binary) != 1) {
                return wrong("host", text, "an IPv4 address (four numbers from 0 to 255)");
            }
        } else if (!is_host_name(text)) {
            return wrong("host", text, "a host name, an IP address or an interface");
        }
        out_.host = text;
        return true;
    }

    static bool is_host_name(std::string_view text) noexcept {
        if (text.size() > max_host_bytes || !all_of(text, "._-")) return false;
        while (!text.empty()) {
            std::size_t dot = text.find('.');
            std::size_t label = std::min(dot, text.size());
            if (label == 0 || label > max_label_bytes) return false;
            text.remove_prefix(std::min(label + 1, text.size()));
        }
        return true;
    }

    /// Empty, ":" or ":PORT".
    bool parse_port(std::string_view text) {
        if (text.size() < 2) return true;
        std::string_view digits = text.substr(1);
        std::uint16_t port = 0;
        auto [end, bad] = std::from_chars(digits.begin(), digits.end(), port);
        if (bad != std::errc{} || end != digits.end()) {
            return wrong("port", digits, "a number from 0 to 65535");
        }
        out_.port = port;
        return true;
    }

    /// "?key=value&key=value" or nothing.
    bool parse_options() {
        if (options_.empty()) return true;
        options_.remove_prefix(1);
        if (options_.empty()) return missing("option", "key=value after \"?\"");
        while (true) {
            std::size_t ampersand = options_.find('&');
            if (!parse_option(options_.substr(0, ampersand))) return false;
            if (ampersand == options_.npos) return true;
            options_.remove_prefix(ampersand + 1);
        }
    }

    bool parse_option(std::string_view text) {
        std::size_t equals = text.find('=');
        std::string_view key = text.substr(0, equals);
        if (text.empty()) return missing("option", "key=value on both sides of each \"&\"");
        if (equals == text.npos || key.empty() || !all_of(key, "._-")) {
            return wrong("option", text, "key=value");
        }
        std::string_view value = text.substr(equals + 1);
        if (!all(value, is_graph)) {
            return wrong("value", value, fmt::format("printable ASCII, of the option {}", key));
        }
        if (out_.option(key)) return wrong("option", key, "given once");
        if (out_.options.size() == uri::max_option_count) {
            return wrong("option", key, fmt::format("among the first {}", uri::max_option_count));
        }
        out_.options.push_back({std::string(key), std::string(value)});
        return true;
    }

    std::string_view text_;
    std::string_view options_;  // From "?" on.
    const form* form_ = &other_form;
    uri out_;
    std::string sentence_;
};

}  // namespace

std::optional<std::string_view> uri::option(std::string_view key) const noexcept {
    for (const uri_option& one : options) {
        if (one.key == key) return one.value;
    }
    return std::nullopt;
}

uri uri::parse(std::string_view text) {
    return std::move(parse_uri(text).value());
}

result<uri> parse_uri(std::string_view text) {
    return parser(text).run();
}

std::string to_string(const uri& u) {
    std::string out = u.scheme;
    if (!u.protocol.empty()) out += '+' + u.protocol;
    if (u.scheme != "mpi" || !u.host.empty()) out += "://";
    if (!u.device.empty()) out += u.device + '/';
    bool ipv6 = u.host.find(':') != u.host.npos;
    out += ipv6 ? '[' + u.host + ']' : u.host;
    if (u.port) out += ':' + std::to_string(*u.port);
    out += u.name;
    char separator = '?';
    for (const uri_option& one : u.options) {
        out += separator;
        out += one.key + '=' + one.value;
        separator = '&';
    }
    return out;
}

std::string transport_of(const uri& there) {
    const bool tls = there.protocol == "tls" ? there.scheme == "tcp"
                                             : without_tls(there.protocol) != there.protocol;
    return there.scheme + (tls ? "+tls" : "");
}

bool is_loopback_host(std::string_view host) noexcept {
    return host == "lo" || host == "localhost" || host == "::1" ||
           (host.starts_with("127.") && all(host, [](char c) { return is_digit(c) || c == '.'; }));
}

uri without_option(uri where, std::string_view key) {
    std::erase_if(where.options, [key](const uri_option& one) { return one.key == key; });
    return where;
}

std::string client_uri(const uri& there) {
    std::string out = there.scheme + (there.protocol.empty() ? "" : "+" + there.protocol) + "://";
    char separator = '?';
    const auto keep = [&](std::string_view key) {
        const auto value = there.option(key);
        if (!value) return;
        out.append(1, separator).append(key).append("=").append(*value);
        separator = '&';
    };
    if (there.scheme == "ucx") {
        if (is_loopback_host(there.host)) out += "lo/";
        keep("insecure");
    }
    if (is_encrypted(there)) {
        keep("credentials");
        if (there.scheme != "tcp") keep("trusted_wire");
    }
    if (const auto user = there.option("uid"); user && there.scheme == "shm")
        out.append("?users=").append(*user);  // Whom it must be let connect with.
    return out;
}

}  // namespace amalgam
