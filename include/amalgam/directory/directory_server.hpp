#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/directory/directory_roles.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

class credentials;
namespace detail {
class directory_core;
}

/// Limits of a directory server. Past them, requests are refused with `overloaded`.
struct directory_limits {
    std::size_t contexts = 65536;                  ///< In total; all other limits are per context.
    std::size_t resources = std::size_t{4} << 20;  ///< Registered at once.
    /// Attribute bytes of its resources and queries. The same limit applies separately to its
    /// undelivered changes, and, over all contexts together, to what other hosts reported for their
    /// watches.
    std::size_t bytes = std::size_t{1} << 30;
    std::size_t searches = 256;  ///< In progress at once.
    std::size_t watches = 1024;  ///< Open at once.
    std::size_t untold = 65536;  ///< Undelivered changes; past it, the context's watches end.
};

/// How a server queries all others.
enum class search_way : std::uint8_t {
    by_broadcast,  ///< Over the broadcast medium; by call trees without one, or if that finds
                   ///< nothing.
    by_tree        ///< By trees of calls.
};

/// How directory servers find and query each other. The defaults suit most networks; use the same
/// `fanout` and `period` on all servers.
struct ring_options {
    /// Addresses of other servers. One that is running is enough to meet all.
    std::vector<std::string> others{};
    /// Medium over which servers discover and query each other. Each server needs its own; see
    /// open_broadcast(). Null: only `others` are found.
    std::shared_ptr<broadcast_medium> medium{};
    /// Signs what is broadcast, and judges what is heard: only members' packets are taken, each
    /// once, and none that is 30 s old. See sign_broadcasts(). Must be given with a medium where
    /// the server listens over tcp+tls. Null: broadcasts are not signed.
    std::shared_ptr<const credentials> trust{};
    search_way search = search_way::by_broadcast;  ///< How this server queries the others.
    /// A broadcast query without a match in this time is repeated by call trees: only that can
    /// prove there is none.
    std::chrono::milliseconds broadcast_wait{5};
    /// Interval of pings to neighbors. A dead neighbor is noticed within three of these.
    std::chrono::milliseconds period{1000};
    /// How long a claim to an id range must stand uncontested; a new server first waits as long to
    /// meet others.
    std::chrono::milliseconds claim_time{200};
    std::chrono::milliseconds answer_limit{2000};  ///< For a query to all other servers.
    std::size_t fanout = 8;  ///< Servers called at once in a tree; at least 1.
    std::uint64_t seed = 0;  ///< Nonzero: seeds all random choices, for tests.
};

/// Options of a directory server. The defaults suit most programs.
struct directory_options {
    directory_limits limits{};  ///< What each context may hold.
    ring_options ring{};        ///< How it meets other servers.
    directory_roles roles{};    ///< Who may join the ring, register resources, or only search.
    /// A context that does not respond for this long counts as hung: it is removed with all its
    /// resources, and returns under the same ids when it responds again. 0: only when its
    /// connection ends.
    std::chrono::milliseconds silence{10000};
    /// Called when another directory on this host asks this one to end, to take over its name: see
    /// ask_to_make_way(). It must not wait or destroy the server. Empty, or if it throws, which is
    /// logged: this one stays.
    std::function<void()> on_make_way{};
};

/// The directory of a host: allocates ids, keeps resources in memory, and answers queries. Contexts
/// on the host reach it at its engine's address. `amalgam directory` runs one in its own process;
/// see also context_options::directory.
///
/// When a context ends or its process dies, its resources go at once; when it hangs, within
/// directory_options::silence.
/// Owner:   borrows the engine, which must outlive it. Contexts lose the directory when it ends;
///          calls that arrive between its end and the engine's throw error{not_found}. May be
///          destroyed anywhere: on another engine's stream and in a tasklet the end does not wait,
///          and the engine can have another directory soon after.
/// Threads: any.
/// Failure: the constructor throws error{invalid} if the engine already has a directory, or
///          directory_roles::owners_of names what no attribute can be named.
class directory_server {
public:
    explicit directory_server(engine& on, directory_options options = {});
    directory_server(const directory_server&) = delete;
    directory_server& operator=(const directory_server&) = delete;
    ~directory_server();

    std::size_t contexts() const;   ///< Currently open.
    std::size_t resources() const;  ///< All resources, including the contexts themselves.
    std::size_t servers() const;    ///< Known servers, including this one.

private:
    std::shared_ptr<detail::directory_core> core_;
};

}  // namespace amalgam
