#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace amalgam::detail {

/// Finds out that a loop in several processes has ended, by rounds in which all of them say what
/// they have added and what they have taken away. Both only rise, so when all that was added until
/// the end of one round was taken away before its start, nothing was in the loop in between: it is
/// over for good (Mattern's four counters).
class loop_rounds {
public:
    /// What one process says in this round: both counts, or nothing before its nodes have started.
    void hear(const std::vector<std::uint64_t>& counts) noexcept {
        if (counts.size() != 2) return miss();
        added_ += counts[0];
        taken_ += counts[1];
    }
    /// One said nothing in this round.
    void miss() noexcept { complete_ = false; }

    /// Ends the round. True: the loop has ended.
    bool is_over() noexcept {
        const bool over = complete_ && taken_before_ == added_;
        taken_before_ = complete_ ? std::optional(taken_) : std::nullopt;
        added_ = taken_ = 0;
        complete_ = true;
        return over;
    }

private:
    std::uint64_t added_ = 0, taken_ = 0;
    bool complete_ = true;
    std::optional<std::uint64_t> taken_before_;  ///< In the round before, if that was complete.
};

}  // namespace amalgam::detail
