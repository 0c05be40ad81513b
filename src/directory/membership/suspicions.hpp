#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <unordered_map>

#include <amalgam/core/clock.hpp>

namespace amalgam::detail {

/// How far a server can trust its own checks (Lifeguard's local health multiplier): one that missed
/// what it should have heard gives others more time before it suspects them.
///
/// Threads: one at a time.
class local_health {
public:
    static constexpr unsigned worst = 8;

    void better() noexcept { score_ -= score_ > 0 ? 1 : 0; }
    void worse() noexcept { score_ += score_ < worst ? 1 : 0; }
    unsigned score() const noexcept { return score_; }
    clock::duration scaled(clock::duration time) const noexcept { return time * (1 + score_); }

private:
    unsigned score_ = 0;
};

/// Servers that this one suspects: in which version, since when, and who else could not reach them.
/// Enough confirmations by others shorten a suspicion. An unconfirmed one lasts longest, since this
/// server itself may be cut off. A later version refutes it.
///
/// Threads: one at a time.
/// Failure: throws std::bad_alloc.
class suspicions {
public:
    using time_point = clock::time_point;

    suspicions(clock::duration least, clock::duration most) : least_(least), most_(most) {}

    /// False if already suspected in that version.
    bool suspect(std::uint64_t who, std::uint32_t version, time_point now);
    void confirm(std::uint64_t who, std::uint64_t by);
    void clear(std::uint64_t who) noexcept { all_.erase(who); }
    void refute(std::uint64_t who, std::uint32_t version) noexcept;

    bool holds(std::uint64_t who) const { return all_.contains(who); }
    std::size_t size() const noexcept { return all_.size(); }
    std::size_t confirmations(std::uint64_t who) const;
    /// Whether the server counts as gone, given that `others` could confirm it.
    bool is_over(std::uint64_t who, std::size_t others, time_point now) const;
    /// How long a suspicion lasts with that many confirmations.
    clock::duration lasts(std::size_t confirmations, std::size_t others) const;

private:
    struct suspicion {
        std::uint32_t version = 0;
        time_point since{};
        std::set<std::uint64_t> by;
    };
    const clock::duration least_, most_;
    std::unordered_map<std::uint64_t, suspicion> all_;
};

}  // namespace amalgam::detail
