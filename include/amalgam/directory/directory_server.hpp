#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

namespace detail {
class directory_core;
}

/// What a directory server lets its contexts take. Past it they are refused with `overloaded`.
struct directory_limits {
    std::size_t contexts = 65536;  ///< All others are of each context.
    std::size_t resources = std::size_t{4} << 20;
    /// Of attributes: its resources' and its queries'; once more, of changes that it has not been
    /// told of, and for all contexts together of what their watches were told of by other hosts.
    std::size_t bytes = std::size_t{1} << 30;
    std::size_t searches = 256;  ///< Under way at once.
    std::size_t watches = 1024;
    std::size_t untold = 65536;  ///< Changes that it has not been told of: then its watches end.
};

/// How servers ask all others.
enum class search_way : std::uint8_t {
    broadcast,  ///< By their medium; by trees when they have none, or it does not help.
    tree        ///< By trees of calls.
};

/// How directory servers find each other, and ask each other. Every field has a default that suits
/// most; `fanout` and `period` are best the same everywhere.
struct ring_options {
    /// Addresses of other servers: one that is there is enough to meet all.
    std::vector<std::string> others{};
    /// Servers on it find each other by themselves, and ask each other by it. A server has one of
    /// its own; see open_broadcast(). None: only `others` are found.
    std::shared_ptr<broadcast_medium> medium{};
    search_way search = search_way::broadcast;
    /// What was broadcast and found nobody in this time is asked once more, by trees: only that
    /// can tell that there is none.
    std::chrono::milliseconds broadcast_wait{5};
    /// How often a server looks whether its neighbours are alive: one that is not is noticed within
    /// three of these.
    std::chrono::milliseconds period{1000};
    /// A server that none of the others has heard of in this time may take its ids for its own.
    std::chrono::milliseconds claim_time{200};
    std::chrono::milliseconds answer_limit{2000};  ///< Of a query to all others.
    std::size_t fanout = 8;                        ///< How many a server asks at once: 1 or more.
    std::uint64_t seed = 0;  ///< Not 0: all that is left to chance follows from it, for tests.
};

/// How a directory server behaves. Every field has a default that suits most.
struct directory_options {
    directory_limits limits{};
    ring_options ring{};
    /// Contexts and other servers must know it, and so must this one theirs. Empty: what the file
    /// has that AMALGAM_SECRET_FILE names; without that, everybody may come.
    std::string secret{};
    /// A context that nothing was heard from for so long, though it was asked, hangs: it is taken
    /// for gone with all that it has, and comes back under the same ids when it goes on. 0: never,
    /// while its connection stands.
    std::chrono::milliseconds silence{10000};
    /// Another directory of this host asks this one to end, so that it can have its name: see
    /// ask_to_make_way(). It must not wait, nor destroy the server. Empty: this one stays.
    std::function<void()> on_make_way{};
};

/// The directory of a host: it hands out ids, keeps resources in memory, and answers queries. The
/// contexts of the host find it at its engine's address. `amalgam directory` is one in a process of
/// its own; see also context_options::directory.
///
/// A context that goes, or whose process does, takes its resources with it at once; one that hangs
/// within directory_options::silence.
/// Owner:   borrows the engine, which outlives it. Contexts have lost it when that ends; between
///          the two ends their calls throw error{not_found}.
/// Threads: any.
/// Failure: the constructor throws error{invalid} when the engine has one already.
class directory_server {
public:
    explicit directory_server(engine& on, directory_options options = {});
    directory_server(const directory_server&) = delete;
    directory_server& operator=(const directory_server&) = delete;
    ~directory_server();

    std::size_t contexts() const;   ///< That are open now.
    std::size_t resources() const;  ///< Their own, and they themselves.
    std::size_t servers() const;    ///< That are known, this one included.

private:
    std::shared_ptr<detail::directory_core> core_;
};

}  // namespace amalgam
