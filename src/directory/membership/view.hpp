#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/directory/directory_server.hpp>

#include "directory/membership/member_table.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/suspicions.hpp"

namespace amalgam::detail {

/// What this server knows of the ring: itself, all other servers, and which of them it suspects of
/// being gone.
///
/// Threads: any. One lock guards all of it, so that a suspicion never outlives the version that
///          refutes it.
class membership_view {
public:
    using time_point = clock::time_point;

    /// Of a server with that key, which knows no other.
    membership_view(std::uint64_t key, std::vector<std::string> addresses,
                    const ring_options& options);

    std::uint64_t key() const noexcept { return key_; }  ///< This server's.
    member self() const;
    std::size_t size() const;                 ///< Number of servers, including this one.
    std::vector<std::uint64_t> keys() const;  ///< Of the other servers.
    bool knows(std::uint64_t key) const;
    std::optional<member> find(std::uint64_t key) const;
    bool has_address(const std::string& address) const;
    /// The other servers that claim or own that id range.
    std::vector<std::uint64_t> claimants_of(std::uint32_t range) const;
    /// The next servers in the ring.
    std::vector<member> successors(std::size_t most) const;
    /// Equal on servers that know the same.
    std::uint64_t digest() const;
    ring_news all(time_point now);  ///< All members, including this server, and departures.

    /// The whole ring without this server.
    ring_part all_others() const noexcept { return {key_, 1, 0}; }
    /// A server asked to handle a part must be in it, and leaves itself out of what it delegates.
    /// So queries never loop, or reach a server twice, whatever addresses members claim. Throws
    /// error{not_found} if this server is not in it.
    void check_is_in(const ring_part& part) const;
    /// Splits a part to delegate it, leaving out that key.
    std::vector<delegation> split(const ring_part& part, std::uint64_t without) const;

    struct learnt {
        ring_news fresh;  ///< What was unknown.
        /// Something false was said of this server, so it must announce itself.
        bool was_wrong = false;
    };
    learnt learn(const ring_news& news, time_point now);

    /// Returns `work(self, others)`, called with the lock held: it must not wait, or call this.
    /// What changes `self` increments its version.
    template <typename Work>
    auto locked(Work work) {
        const std::lock_guard one(lock_);
        return work(self_, static_cast<const member_table&>(others_));
    }

    bool suspects(std::uint64_t key) const;
    /// Other servers that are not suspected.
    std::vector<std::uint64_t> trusted(std::uint64_t without) const;
    struct suspicion {
        bool fresh = false;
        bool over = false;       ///< It lasted long enough: the server counts as gone.
        bool confirmed = false;  ///< By other servers, or there is none that could.
    };
    /// Suspects it, confirmed by those other servers. Empty: it has refuted that, or is gone.
    std::optional<suspicion> suspect(const member& who, const std::vector<std::uint64_t>& by,
                                     time_point now);
    void trust(std::uint64_t key);

private:
    bool contradict(std::uint32_t version);

    const std::uint64_t key_;
    const std::size_t fanout_;

    mutable std::mutex lock_;  // Never held across a wait. Nothing but chance is locked meanwhile.
    member self_;
    member_table others_;
    suspicions suspected_;
};

}  // namespace amalgam::detail
