#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
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

/// "1.2k", "3.4 MiB", "97 %", "950 us"; text as it is.
std::string written(const top_cell& cell, shown_as as);

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

/// What the user has chosen.
struct top_view {
    std::size_t table = 0;
    std::map<std::string, std::size_t> sort_by{};  ///< By table; else its own.
    bool ascending = false;
    std::string filter{};   ///< Rows with this in a text.
    std::size_t first = 0;  ///< Row shown first.
    bool paused = false;
};

/// Rows that pass the filter, sorted.
std::vector<std::vector<top_cell>> chosen_rows(const top_table& table, const top_view& view);
/// Lines of a table: the title line, then the rows; each at most `width` columns wide. The column
/// that it is sorted by has a "*". Where texts have no room, the last columns of numbers are left
/// out.
std::vector<std::string> lines_of(const top_table& table, const top_view& view, std::size_t width);
/// The names of all tables with their digits, the chosen one in brackets. Where they do not fit
/// `width` columns, with less between them, then without the names of the others.
std::string tabs_of(const std::vector<top_table>& tables, std::size_t chosen, std::size_t width);
/// "▁▂▇" of the newest values, `width` columns wide; with digits 0 to 9 if `plain`.
std::string curve_text(const std::deque<double>& values, std::size_t width, bool plain);
/// At most that many columns wide: ends in "~" if something was cut off.
std::string cut(std::string_view text, std::size_t width);

}  // namespace amalgam::tool
