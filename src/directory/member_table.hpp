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

/// A directory server, as the others know it. `key` is random, new for each run of a server, and
/// its place in the ring of all.
struct member {
    std::uint64_t key = 0;
    std::uint32_t version = 0;  ///< Counts its changes; the highest is right.
    std::vector<std::string> addresses;
    std::vector<std::uint32_t> ranges;   ///< Of ids, that it owns or claims.
    std::vector<std::uint32_t> settled;  ///< Those of them that it says it owns, if anybody asked.

    template <typename Archive>
    void serialize(Archive& a) {
        a(key, version, addresses, ranges, settled);
    }
    friend bool operator==(const member&, const member&) = default;
};

/// It is what a server may say of itself: ranges there are, each once, and not too much of
/// anything. Whoever keeps members keeps no others, so that a stranger's cannot take all memory.
bool is_proper(const member& one);
inline constexpr std::size_t most_ranges = 1024;   ///< Of one server: 67 million ids.
inline constexpr std::size_t most_addresses = 32;  ///< Of one server, of 255 bytes at most.

/// That a server is gone which had this version. If it is not, it says so with the next one.
struct departure {
    std::uint64_t key = 0;
    std::uint32_t version = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(key, version);
    }
    friend bool operator==(const departure&, const departure&) = default;
};

/// A part of the ring of keys: all that are at least `first` steps behind `from`, and fewer than
/// `end`; an end of 0 is the whole ring's.
struct ring_part {
    std::uint64_t from = 0;
    std::uint64_t first = 1;  ///< `from` itself is none of them.
    std::uint64_t end = 0;

    bool holds(std::uint64_t key) const noexcept {
        return key - from >= first && (end == 0 || key - from < end);
    }
    template <typename Archive>
    void serialize(Archive& a) {
        a(from, first, end);
    }
};

/// A part of the ring, and who in it is to see to it.
struct delegation {
    ring_part part;
    std::uint64_t who = 0;
};

/// The other directory servers: who there is, where, and with which ids.
///
/// Threads: one at a time.
/// Failure: throws std::bad_alloc.
/// Cost:    logarithmic in their number; a new one moves half of a list of keys.
class member_table {
public:
    using time_point = clock::time_point;

    /// Departures are kept in mind so long, against late news of who is gone. So many members are
    /// kept, and as many departures.
    explicit member_table(clock::duration keep = std::chrono::seconds(10),
                          std::size_t most_members = 65536)
        : most_members_(most_members), keep_(keep) {}

    static constexpr std::size_t most_claims = 131072;  ///< Of all: four times the ranges.

    enum class learnt : std::uint8_t { nothing, newer, first };
    /// It was heard of at that time. `nothing`: that is not new, or older than what is known, or
    /// than its departure; or not proper, or one too many.
    learnt learn(const member& what, time_point when);
    /// It is gone. False: it was not known, or is there in a later version.
    bool remove(const departure& what, time_point when);
    /// Those that are kept in mind.
    std::vector<departure> departures(time_point now);

    const member* find(std::uint64_t key) const;
    /// Whose range that is; null: nobody's who is known. Of several the one that was first heard to
    /// claim it.
    const member* owner_of(std::uint32_t range) const;
    /// All that claim it, or own it.
    std::vector<const member*> claimants_of(std::uint32_t range) const;
    /// One of them is known by this address. Cost: a look at each.
    bool has_address(const std::string& address) const;
    std::size_t size() const noexcept { return all_.size(); }
    std::vector<member> all() const;  ///< In the order of the ring.
    const std::vector<std::uint64_t>& keys() const noexcept { return ring_; }  ///< Sorted.
    /// The next in the ring, `steps` behind that key; null: there are not so many.
    const member* after(std::uint64_t key, std::size_t steps = 1) const;
    /// The same for the same members in the same versions with the same addresses and ranges; for
    /// others it most likely differs: the sum of what each adds.
    std::uint64_t digest() const noexcept { return digest_; }
    static std::uint64_t digest_of(const member& one) noexcept;

    /// Cuts a part into as many as are to be asked at once, `most` at most, with about as many
    /// members each. Together they hold all of it, also who is not known here. None: nobody known
    /// is there.
    std::vector<delegation> split(const ring_part& part, std::size_t most) const;
    /// The same without a key that sees to itself. May be twice as many.
    std::vector<delegation> split_around(std::uint64_t key, const ring_part& part,
                                         std::size_t most) const;

private:
    void note_ranges(const member& before, const member& now, time_point when);

    const std::size_t most_members_;
    std::unordered_map<std::uint64_t, member> all_;
    std::vector<std::uint64_t> ring_;  // Their keys, sorted.
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
