#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace amalgam::detail {

/// Detects the end of a loop that spans processes, by rounds in which each process reports how many
/// items it has added and taken away. Both counts only grow. So if everything added by the end of
/// one round had been taken away before its start, the loop was empty in between: it has ended for
/// good (Mattern's four counters).
class loop_rounds {
public:
    /// One process's report for this round: both counts, or empty before its nodes have started.
    void hear(const std::vector<std::uint64_t>& counts) noexcept {
        if (counts.size() != 2) return miss();
        added_ += counts[0];
        taken_ += counts[1];
    }
    /// A process did not report in this round.
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
    std::optional<std::uint64_t> taken_before_;  ///< Of the previous round, if complete.
};

}  // namespace amalgam::detail
