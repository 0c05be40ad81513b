#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/directory/resource_id.hpp>

namespace amalgam::detail {

inline bool contains(const std::vector<std::uint32_t>& ranges, std::uint32_t which) {
    return std::find(ranges.begin(), ranges.end(), which) != ranges.end();
}

/// A directory server as others know it. `key` is random, new for each run of a server, and
/// determines its place in the ring.
struct member {
    std::uint64_t key = 0;
    std::uint32_t version = 0;  ///< Incremented on each change; the highest wins.
    std::vector<std::string> addresses;
    std::vector<std::uint32_t> ranges;   ///< Of ids, owned or claimed.
    std::vector<std::uint32_t> settled;  ///< Those it owns, if a conflict made it say so.

    template <typename Archive>
    void serialize(Archive& a) {
        a(key, version, addresses, ranges, settled);
    }
    friend bool operator==(const member&, const member&) = default;
};

/// Whether a server may describe itself this way: valid ranges, no duplicates, nothing over the
/// limits. Only proper members are kept, so that a stranger cannot exhaust memory.
bool is_proper(const member& one);

/// News that a server is gone, as of this version. If it is alive, it refutes that with the next
/// version.
struct departure {
    std::uint64_t key = 0;
    std::uint32_t version = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(key, version);
    }
    friend bool operator==(const departure&, const departure&) = default;
};

/// A part of the ring: keys from `first` up to, not including, `end` steps after `from`; `end` 0
/// means the whole ring.
struct ring_part {
    std::uint64_t from = 0;
    std::uint64_t first = 1;  ///< Excludes `from` itself.
    std::uint64_t end = 0;

    bool holds(std::uint64_t key) const noexcept {
        return key - from >= first && (end == 0 || key - from < end);
    }
    template <typename Archive>
    void serialize(Archive& a) {
        a(from, first, end);
    }
};

/// A part of the ring, and the server in it that handles it.
struct delegation {
    ring_part part;
    std::uint64_t who = 0;
};

/// The other directory servers: their keys, addresses and id ranges.
///
/// Threads: one at a time.
/// Failure: throws std::bad_alloc.
/// Cost:    logarithmic in their number; a new one moves half of a list of keys.
class member_table {
public:
    using time_point = clock::time_point;

    /// `keep`: how long departures are remembered, against stale news. The limit applies to members
    /// and to departures separately.
    explicit member_table(clock::duration keep = std::chrono::seconds(10),
                          std::size_t most_members = 65536)
        : most_members_(most_members), keep_(keep) {}

    enum class learnt : std::uint8_t { nothing, newer, first };
    /// News of a member, received at that time. `nothing` if it is not new, is older than what is
    /// known or than its departure, is not proper, or exceeds the limit.
    learnt learn(const member& what, time_point when);
    /// Removes it. False if it is unknown, or known in a later version.
    bool remove(const departure& what, time_point when);
    /// Departures still remembered.
    std::vector<departure> departures(time_point now);

    const member* find(std::uint64_t key) const;
    /// Owner of that range; null if no known member has it. Of several, the first that was known to
    /// claim it.
    const member* owner_of(std::uint32_t range) const;
    /// All members that claim or own it.
    std::vector<const member*> claimants_of(std::uint32_t range) const;
    /// Whether a member has this address. Cost: linear.
    bool has_address(const std::string& address) const;
    std::size_t size() const noexcept { return all_.size(); }
    std::vector<member> all() const;                                           ///< In ring order.
    const std::vector<std::uint64_t>& keys() const noexcept { return ring_; }  ///< Sorted.
    /// The member `steps` after that key in the ring; null if there are fewer.
    const member* after(std::uint64_t key, std::size_t steps = 1) const;
    /// A sum over the members: equal for the same members in the same versions with the same
    /// addresses and ranges; otherwise almost surely different.
    std::uint64_t digest() const noexcept { return digest_; }
    static std::uint64_t digest_of(const member& one) noexcept;

    /// Splits a part into at most `most` parts with about equal numbers of members. Together they
    /// cover all of it, including unknown members. Empty if no known member is in it.
    std::vector<delegation> split(const ring_part& part, std::size_t most) const;
    /// The same, leaving out a key that handles itself. May return twice as many.
    std::vector<delegation> split_around(std::uint64_t key, const ring_part& part,
                                         std::size_t most) const;

private:
    void note_ranges(const member& before, const member& now, time_point when);

    const std::size_t most_members_;
    std::unordered_map<std::uint64_t, member> all_;
    std::vector<std::uint64_t> ring_;  // Keys of the members, sorted.
    struct claim {
        std::uint64_t key;
        time_point since;
    };
    std::unordered_multimap<std::uint32_t, claim> claims_;  // By range.
    struct past {
        std::uint32_t version;
        time_point when;
    };
    std::unordered_map<std::uint64_t, past> gone_;
    clock::duration keep_;
    std::uint64_t digest_ = 0;
};

}  // namespace amalgam::detail
