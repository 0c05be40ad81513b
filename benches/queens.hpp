#pragma once

#include <cstdint>
#include <stdexcept>

namespace amalgam::bench {

/// A board with queens in its first rows; one bit per attacked column.
struct board {
    static constexpr int size = 13;
    static constexpr int solutions = 73712;
    /// A unit of work for each queen in the first rows: 38,679, of which 31,100 take about 0.8 us.
    static constexpr int forked_rows = 5;
    static constexpr std::uint32_t all = (1u << size) - 1;

    std::uint32_t columns = 0;
    std::uint32_t left = 0;  // diagonals, as they reach this row
    std::uint32_t right = 0;
    int row = 0;

    std::uint32_t free_columns() const { return all & ~(columns | left | right); }
    /// With one more queen, in the column of `bit`.
    board with(std::uint32_t bit) const {
        return {columns | bit, (left | bit) << 1, (right | bit) >> 1, row + 1};
    }
    bool forks() const { return row < forked_rows; }

    /// Number of ways to complete it, found without forking.
    int count() const {
        if (row == size) return 1;
        int found = 0;
        for (std::uint32_t free = free_columns(); free != 0; free &= free - 1)
            found += with(free & -free).count();
        return found;
    }
};

/// Throws if a search has not found all.
inline void check_queens(int found) {
    if (found != board::solutions) throw std::runtime_error("the search has lost solutions");
}

}  // namespace amalgam::bench
