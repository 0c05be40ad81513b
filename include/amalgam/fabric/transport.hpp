#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/port.hpp>

namespace amalgam {

/// How a port behaves; every field has a default that suits most. A limit of more than 30 days
/// counts as 30 days.
struct port_options {
    static constexpr std::chrono::milliseconds longest_limit = std::chrono::hours(30 * 24);

    /// How long a peer may be silent while we wait for it before it counts as gone; also the
    /// limit for reaching it. More than 0.
    std::chrono::milliseconds silence_limit{5000};
    /// How long a frame that has begun may take to go on (tcp): a peer that sends less than 4 KiB
    /// of it in that time is ended. A program that is stopped for longer in the midst of a send
    /// loses its connection. 0: for ever.
    std::chrono::milliseconds frame_limit{60000};
    /// Connections that were accepted and have not said hello yet (tcp). A newcomer past it takes
    /// the place of the oldest. At least 1.
    std::size_t max_strangers = 1024;
    /// Messages that nobody has taken yet (expected ones without a posted receive, any without a
    /// sink): past this many bytes from one peer we stop reading from it until they are taken. What
    /// it sent behind them waits, too, its puts and gets and the answers to ours among it.
    std::size_t max_queued_bytes = std::size_t{64} << 20;
    /// The same of all peers of the port together, large messages that are still arriving among
    /// them. Past it we read from no peer whose messages wait. Past it by the length of the
    /// longest message, the connection of the peer that holds most is ended, with `overloaded`.
    std::size_t max_queued_bytes_total = std::size_t{256} << 20;
};

/// What `amalgam info` shows about a transport.
struct transport_info {
    std::string name{};
    bool usable = false;
    std::string summary{};               ///< What it does here: "sockets, IPv4 and IPv6".
    std::string why_not{};               ///< One sentence, when not usable.
    std::vector<std::string> details{};  ///< Facts probed at start: "rma: cross-memory attach".
    std::string example{};               ///< A URI that works: "tcp://127.0.0.1:0".
};

/// Opens ports of one kind. Stateless but for what it probed about the machine.
///
/// Threads: const members may run concurrently.
class transport {
public:
    virtual ~transport() = default;
    virtual std::string_view name() const noexcept = 0;  ///< The URI scheme: "tcp".
    virtual transport_info describe() const = 0;
    /// Failure: `invalid`, `unsupported`, `unreachable`, `in_use` when another port has the address
    ///          … with one sentence for the user.
    virtual result<std::unique_ptr<port>> open(const uri& where,
                                               const port_options& options) const = 0;
};

namespace detail {
class plugin_folders;
}

/// The transports a program can choose from by URI.
///
/// Threads: build it in one thread; const members may run concurrently then.
class transport_registry {
public:
    transport_registry();
    transport_registry(transport_registry&&) noexcept;
    transport_registry& operator=(transport_registry&&) noexcept;
    ~transport_registry();

    /// A registry that holds the native ones: loop, shm, tcp.
    static transport_registry native();
    /// The native ones, and those of plug-ins, each loaded when it is first asked for; where they
    /// are looked for: see plugin.hpp. Cost: as native().
    static transport_registry installed();

    /// Adds one; a later one of the same name replaces the earlier.
    /// Failure: throws error{invalid} for null.
    void add(std::unique_ptr<transport> one);
    /// Failure: nullptr, also for a plug-in that cannot be loaded.
    const transport* find(std::string_view name) const noexcept;
    /// Of all, also of plug-ins that cannot be loaded. Loads every plug-in.
    std::vector<transport_info> describe() const;

    /// Opens the port that `where` names.
    /// Failure: what the URI parser says; `invalid` for an option that is out of its range;
    ///          `not_found` with the names there are; `unsupported` for a
    ///          plug-in that cannot be loaded, with the reason.
    result<std::unique_ptr<port>> open(std::string_view where,
                                       const port_options& options = {}) const;

private:
    std::vector<std::unique_ptr<transport>> all_;
    std::unique_ptr<detail::plugin_folders> plugins_;
};

}  // namespace amalgam
