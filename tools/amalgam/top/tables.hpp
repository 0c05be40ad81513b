#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "stats/number_source.hpp"

namespace amalgam::tool {

/// How a column's numbers are written.
enum class shown_as : std::uint8_t { text, count, rate, percent, bytes, time };

struct top_column {
    std::string title;
    shown_as as = shown_as::text;
};

struct top_cell {
    std::string text;   ///< Of text columns.
    double number = 0;  ///< Of the others.
};

/// One kind of thing, a row for each.
struct top_table {
    std::string name;                 ///< "procedures"
    std::vector<top_column> columns;  ///< The first ones are text.
    std::size_t sort_by = 0;          ///< As long as the user chooses nothing else: largest first.
    std::vector<std::vector<top_cell>> rows;
};

/// What is shown of numbers: tables, and a short history.
///
/// Rates are of the time between the last two rounds.
class top_model {
public:
    using clock = std::chrono::steady_clock;

    void take(numbers_told told, clock::time_point now);
    /// Whether there were two rounds, so that rates are known.
    bool has_rates() const noexcept { return seconds_ > 0; }

    /// Those that have a row: processes, procedures, peers, streams, pools, nodes, channels.
    std::vector<top_table> tables() const;
    /// "run 4711: ./program, 12 s" and what is wrong.
    std::vector<std::string> head() const;

    struct curve {
        std::string title;
        shown_as as;
        std::deque<double> values;  ///< The newest last; at most `longest`.
    };
    static constexpr std::size_t longest = 240;
    const std::vector<curve>& curves() const noexcept { return curves_; }

private:
    /// Numbers of one process, now and before.
    struct seen {
        std::string name;
        const metric_snapshot* now;
        const metric_snapshot* before;  // Null: it was not there.
    };
    std::vector<seen> all_seen() const;
    double rate(const seen& of, const std::string& name,
                const std::vector<metric_label>& labels = {}) const;
    double total_rate(const seen& of, const std::string& name) const;
    top_table processes() const;
    top_table procedures() const;
    top_table peers() const;
    top_table values() const;
    top_table ports() const;
    top_table streams() const;
    top_table pools() const;
    top_table nodes() const;
    top_table channels() const;
    void add_to_curves();

    numbers_told now_, before_;
    clock::time_point at_{};
    double seconds_ = 0;
    std::vector<curve> curves_;
};

}  // namespace amalgam::tool
