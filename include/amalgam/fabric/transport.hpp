#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/port.hpp>

namespace amalgam {

class credentials;

/// How a port behaves. Limits above 30 days count as 30 days.
struct port_options {
    /// 30 days.
    static constexpr std::chrono::milliseconds longest_limit = std::chrono::hours(30 * 24);

    /// A peer that stays silent this long while we wait for it counts as gone. Also the limit for
    /// connecting. Must be positive.
    std::chrono::milliseconds silence_limit{5000};
    /// tcp: a peer that has begun a frame must send at least 4 KiB of it in this time, or its
    /// connection ends. A program stopped for longer in the middle of a send loses its connection.
    /// 0: no limit.
    std::chrono::milliseconds frame_limit{60000};
    /// tcp: accepted connections whose handshake is pending. Beyond this, a new one evicts the
    /// oldest. At least 1.
    std::size_t max_strangers = 1024;
    /// Bytes per peer of messages not taken yet: expected ones without a posted receive, any
    /// without a sink. Beyond this we stop reading from the peer until they are taken. Everything
    /// it sent after them waits too, including its puts and gets and its replies to ours.
    std::size_t max_queued_bytes = std::size_t{64} << 20;
    /// The same for all peers of the port together, including large messages still arriving. Beyond
    /// this we stop reading from every peer that has messages waiting. If the excess passes the
    /// length of the longest message, the peer that holds most is disconnected with `overloaded`.
    std::size_t max_queued_bytes_total = std::size_t{256} << 20;
    /// Ports that encrypt (tcp+tls, ucx+tcp+tls, ...): what this port proves itself with, and whom
    /// it trusts. The URI's option `credentials` comes before it. Others do not use it.
    std::shared_ptr<const credentials> trust{};
    /// Whether an endpoint that other hosts can reach may be one that asks nobody who he is: any
    /// without TLS. Else it is refused. The URI's option `insecure` says it of that one:
    /// tcp://eth0:7000?insecure=yes. What stays on this host needs neither.
    bool insecure = false;

    /// Not inline: of an inline one GCC 12 says in users' programs, wrongly, that `trust` may be
    /// used uninitialized.
    ~port_options();
};

/// What `amalgam info` shows about a transport.
struct transport_info {
    std::string name{};     ///< The scheme of its URIs: "tcp".
    bool usable = false;    ///< Whether it can open ports on this machine.
    std::string summary{};  ///< What it does on this machine: "sockets, IPv4 and IPv6".
    std::string why_not{};  ///< One sentence, if not usable.
    std::vector<std::string> details{};  ///< Facts probed at start: "rma: cross-memory attach".
    std::string example{};               ///< A URI that works: "tcp://127.0.0.1:0".
};

/// Opens ports of one kind. Stateless except for facts probed about the machine.
///
/// Threads: const members may run concurrently.
class transport {
public:
    virtual ~transport() = default;
    virtual std::string_view name() const noexcept = 0;  ///< The URI scheme: "tcp".
    virtual transport_info describe() const = 0;
    /// Failure: `invalid`, `unsupported`, `unreachable`, `in_use` if another port has the address,
    ///          `denied` if others could reach it (port_options::insecure), and others; each with
    ///          one sentence for the user.
    virtual result<std::unique_ptr<port>> open(const uri& where,
                                               const port_options& options) const = 0;
};

namespace detail {
class plugin_folders;
}

/// The transports a program can choose from by URI.
///
/// Threads: set up in one thread; after that, const members may run concurrently.
class transport_registry {
public:
    transport_registry();
    transport_registry(transport_registry&&) noexcept;
    transport_registry& operator=(transport_registry&&) noexcept;
    ~transport_registry();

    /// The built-in transports: loop, shm, tcp.
    static transport_registry native();
    /// The built-in transports and plug-ins. A plug-in is loaded on first use; plugin.hpp lists
    /// where plug-ins are looked for. Cost: as native().
    static transport_registry installed();

    /// Adds a transport, replacing any earlier one of the same name.
    /// Failure: throws error{invalid} for null.
    void add(std::unique_ptr<transport> one);
    /// Failure: nullptr if there is none, or its plug-in cannot be loaded.
    const transport* find(std::string_view name) const noexcept;
    /// Describes all transports, including plug-ins that cannot be loaded. Loads every plug-in.
    std::vector<transport_info> describe() const;

    /// Opens the port that `where` names.
    /// Failure: whatever the URI parser reports; `invalid` for an option out of range; `not_found`,
    ///          listing the available names; `unsupported`, with the reason, for a plug-in that
    ///          cannot be loaded.
    result<std::unique_ptr<port>> open(std::string_view where,
                                       const port_options& options = {}) const;

private:
    std::vector<std::unique_ptr<transport>> all_;
    std::unique_ptr<detail::plugin_folders> plugins_;
};

}  // namespace amalgam
