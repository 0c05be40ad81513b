#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "top/tables.hpp"

namespace amalgam::tool {

/// "1.2k", "3.4 MiB", "97 %", "950 us"; text as it is.
std::string written(const top_cell& cell, shown_as as);

/// What the user has chosen.
struct top_view {
    std::size_t table = 0;
    std::map<std::string, std::size_t> sort_by{};  ///< By table; else its own.
    bool ascending = false;
    std::string filter{};              ///< Rows with this in a text.
    std::size_t first = 0;             ///< Row shown first.
    std::size_t columns_left_out = 0;  ///< Behind the first column, which is always shown.
    bool paused = false;
};

/// Rows that pass the filter, sorted.
std::vector<std::vector<top_cell>> chosen_rows(const top_table& table, const top_view& view);
/// Lines of a table: the title line, then the rows; each at most `width` columns wide. The column
/// that it is sorted by has a "*". Where texts have no room, the last columns of numbers are left
/// out.
std::vector<std::string> lines_of(const top_table& table, const top_view& view, std::size_t width);
/// Whether some are left out, so that one at the left can be left out instead.
bool leaves_out_last_columns(const top_table& table, const top_view& view, std::size_t width);
/// The names of all tables with their digits, the chosen one in brackets. Where they do not fit
/// `width` columns, with less between them, then without the names of the others.
std::string tabs_of(const std::vector<top_table>& tables, std::size_t chosen, std::size_t width);
/// "▁▂▇" of the newest values, `width` columns wide; with digits 0 to 9 if `plain`.
std::string curve_text(const std::deque<double>& values, std::size_t width, bool plain);
/// At most that many columns wide: ends in "~" if something was cut off.
std::string cut(std::string_view text, std::size_t width);

}  // namespace amalgam::tool
