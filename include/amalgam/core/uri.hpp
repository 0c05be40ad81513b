#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam {

/// One `?key=value` at the end of a URI.
struct uri_option {
    std::string key;    ///< Letters, digits and ._-; once in a URI.
    std::string value;  ///< Printable ASCII, as it is written; may be empty.
    friend bool operator==(const uri_option&, const uri_option&) = default;
};

/// The address of an endpoint and the transport that reaches it. The forms:
///
///     loop://NAME                            in-process
///     shm://[NAME]                           same host; alias na+sm://[NAME]
///     tcp://[HOST|IP|INTERFACE][:[PORT]]     [IPv6] and [IPv6%ZONE] in brackets
///     ucx+PROTO://[DEVICE/][HOST][:[PORT]]   likewise ofi+PROTO://[DOMAIN/]...
///     mpi+static[://RANK[:PORT]]             the ports of a rank differ in PORT; or mpi+dynamic
///     ...+tls://...                          tcp, ucx, ofi and mpi+static encrypted: tcp+tls
///     OTHER[+PROTO]://ANYTHING               out-of-tree transports
///
/// Each may end in `?key=value&key=value`. Without a host, as in `tcp://`, an endpoint can call but
/// does not listen. An unknown scheme is not an error here: only opening a port tells whether a
/// transport of that name exists.
///
/// Threads: a plain value.
struct uri {
    static constexpr std::size_t max_bytes = 2048;       ///< Of the whole URI.
    static constexpr std::size_t max_name_bytes = 64;    ///< Of a loop or shm name.
    static constexpr std::size_t max_option_count = 16;  ///< Of `?key=value`.

    std::string scheme;  ///< The transport's name: "tcp", "shm", "ucx".
    std::string
        protocol;  ///< "tcp" of ucx+tcp, "tls" of tcp+tls, "dynamic" of mpi+dynamic, or empty.
    std::string device;  ///< Device of ucx, domain of ofi, or empty.
    std::string host;    ///< Host, address (IPv6 without brackets), interface or rank, or empty.
    std::optional<std::uint16_t> port;  ///< 0 asks for a free port; empty if not given.
    std::string name;                 ///< Of loop and shm; for other schemes all text after "://".
    std::vector<uri_option> options;  ///< In the order given; keys are unique.

    /// The value of option `key`, if present. Borrowed from this object.
    std::optional<std::string_view> option(std::string_view key) const noexcept;

    /// As parse_uri(), but throws error{invalid} with the same sentence.
    static uri parse(std::string_view text);

    friend bool operator==(const uri&, const uri&) = default;
};

/// Parses every form above. The result is canonical: lower-case scheme, aliases replaced, IPv6
/// addresses in shortest form.
///
/// Failure: `invalid`, with one sentence that names the part, what was expected, and an example:
///          uri "tcp://h:99999": the port "99999" is not a number from 0 to 65535; example:
///          tcp://127.0.0.1:7000
/// Cost:    allocates; for set-up, not per message.
result<uri> parse_uri(std::string_view text);

/// The canonical text. parse_uri(to_string(u)) returns u for every parsed u.
std::string to_string(const uri& u);

/// The name of the transport that reaches it, as in capabilities::transport: "tcp", "tcp+tls",
/// "ucx".
std::string transport_of(const uri& there);

/// Whether what such a transport sends is encrypted, and its ends prove who they are: "tcp+tls",
/// "ucx+tls".
constexpr bool is_encrypted(std::string_view transport) noexcept {
    return transport.ends_with("+tls");
}
inline bool is_encrypted(const uri& there) {
    return is_encrypted(transport_of(there));
}

/// Whether a host is known to be loopback without asking the machine: lo, localhost, ::1, 127.….
bool is_loopback_host(std::string_view host) noexcept;

/// The same URI without the options of this name.
uri without_option(uri where, std::string_view key);

/// The URI of a port that can call `there` and does not listen: tcp:// for tcp://node7:7000.
/// Keeps the option `credentials` of tcp+tls, with which the caller proves itself. Of ucx, which
/// listens by itself on every interface in use, it keeps the option `insecure`, and uses loopback
/// only to call a loopback address: ucx+tcp://lo/ for ucx+tcp://127.0.0.1:7000. Another user's
/// shm://name?uid=7 is called from shm://?users=7.
std::string client_uri(const uri& there);

}  // namespace amalgam
