#include "top/drawing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

namespace amalgam::tool {
namespace {

std::string scaled(double number, double step, const std::array<const char*, 6>& units) {
    std::size_t unit = 0;
    while (std::abs(number) >= step && unit + 1 < units.size()) {
        number /= step;
        ++unit;
    }
    return std::abs(number) < 10 && number != std::floor(number)
               ? fmt::format("{:.1f}{}", number, units[unit])
               : fmt::format("{:.0f}{}", number, units[unit]);
}

std::string time_text(double seconds) {
    if (seconds <= 0) return "-";
    if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
    if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
    return seconds < 1 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

/// Columns that a text of UTF-8 takes, as far as one character takes one.
std::size_t columns_of(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    }));
}

std::string padded(const std::string& what, std::size_t width, bool left) {
    const std::size_t is = columns_of(what);
    const std::string room(width > is ? width - is : 0, ' ');
    return left ? what + room : room + what;
}

}  // namespace

std::string written(const top_cell& cell, shown_as as) {
    static constexpr std::array<const char*, 6> thousands{"", "k", "M", "G", "T", "P"};
    static constexpr std::array<const char*, 6> binary{" B",   " KiB", " MiB",
                                                       " GiB", " TiB", " PiB"};
    switch (as) {
        case shown_as::text:
            return cell.text;
        case shown_as::count:
        case shown_as::rate:
            return scaled(cell.number, 1000, thousands);
        case shown_as::percent:
            return fmt::format("{:.0f} %", 100 * cell.number);
        case shown_as::bytes:
            return scaled(cell.number, 1024, binary);
        case shown_as::time:
            return time_text(cell.number);
    }
    return {};
}

std::string cut(std::string_view text, std::size_t width) {
    if (columns_of(text) <= width) return std::string(text);
    if (width == 0) return {};
    std::string kept;
    std::size_t columns = 0;
    for (const char c : text) {
        if ((static_cast<unsigned char>(c) & 0xc0) != 0x80 && ++columns == width) break;
        kept += c;
    }
    return kept + "~";
}

std::vector<std::vector<top_cell>> chosen_rows(const top_table& table, const top_view& view) {
    std::vector<std::vector<top_cell>> rows;
    for (const auto& each : table.rows) {
        const bool fits =
            view.filter.empty() || std::any_of(each.begin(), each.end(), [&](const top_cell& cell) {
                return cell.text.find(view.filter) != std::string::npos;
            });
        if (fits) rows.push_back(each);
    }
    const auto chosen = view.sort_by.find(table.name);
    const std::size_t by = std::min(chosen == view.sort_by.end() ? table.sort_by : chosen->second,
                                    table.columns.size() - 1);
    const bool is_text = table.columns[by].as == shown_as::text;
    const auto less = [&](const auto& a, const auto& b) {
        return is_text ? a[by].text < b[by].text : a[by].number > b[by].number;
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) {
        return view.ascending ? less(b, a) : less(a, b);
    });
    return rows;
}

std::string tabs_of(const std::vector<top_table>& tables, std::size_t chosen, std::size_t width) {
    const auto line = [&](std::string text, bool spaced, bool named) {
        for (std::size_t i = 0; i < tables.size(); ++i) {
            const std::string one = named || i == chosen
                                        ? fmt::format("{} {}", i + 1, tables[i].name)
                                        : fmt::format("{}", i + 1);
            const char* const form =
                i == chosen ? (spaced ? " [{}]" : "[{}]") : (spaced ? "  {} " : " {} ");
            text += fmt::format(fmt::runtime(form), one);
        }
        return text;
    };
    std::string text = line("amalgam top ", true, true);
    if (text.size() > width) text = line("", false, true);
    if (text.size() > width) text = line("", false, false);
    return text;
}

namespace {

/// Which columns of a table have room, and how wide each is.
class layout {
public:
    layout(const top_table& table, const top_view& view, std::size_t width) : table_(table) {
        const auto rows = chosen_rows(table, view);
        const auto chosen = view.sort_by.find(table.name);
        sorted_by_ = chosen == view.sort_by.end() ? table.sort_by : chosen->second;
        cells_.resize(rows.size() + 1);
        for (std::size_t i = 0; i < table.columns.size(); ++i) {
            cells_[0].push_back(table.columns[i].title + (i == sorted_by_ ? "*" : ""));
            std::size_t widest = columns_of(cells_[0].back());
            for (std::size_t row = 0; row < rows.size(); ++row) {
                cells_[row + 1].push_back(written(rows[row][i], table.columns[i].as));
                widest = std::max(widest, columns_of(cells_[row + 1].back()));
            }
            widths_.push_back(widest);
            is_shown_.push_back(i == 0 || i > view.columns_left_out);
        }
        leave_out_last_numbers(view, width);
        shorten_texts(width);
    }

    std::vector<std::string> lines(std::size_t width) const {
        std::vector<std::string> all;
        for (const auto& row : cells_) {
            std::string line;
            for (std::size_t i = 0; i < row.size(); ++i) {
                if (!is_shown_[i]) continue;
                if (i != 0) line += "  ";
                line += padded(cut(row[i], widths_[i]), widths_[i], is_text(i));
            }
            while (line.ends_with(' '))
                line.pop_back();
            all.push_back(cut(line, width));
        }
        return all;
    }
    bool leaves_out_last() const noexcept { return leaves_out_last_; }

private:
    bool is_text(std::size_t column) const { return table_.columns[column].as == shown_as::text; }
    /// With two between any two columns, of texts at most that long.
    std::size_t room_for(bool texts, std::size_t longest = SIZE_MAX) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < widths_.size(); ++i)
            if (is_shown_[i] && is_text(i) == texts) sum += std::min(widths_[i], longest) + 2;
        return sum;
    }
    /// Where texts could not be told apart beside them.
    void leave_out_last_numbers(const top_view& view, std::size_t width) {
        constexpr std::size_t readable = 12;
        const std::size_t texts = room_for(true, readable);
        for (std::size_t i = widths_.size(); i-- > 0 && texts + room_for(false) > width + 2;) {
            if (is_text(i) || i <= view.columns_left_out || i == sorted_by_) continue;
            is_shown_[i] = false;
            leaves_out_last_ = true;
        }
    }
    /// Texts share what numbers leave; the widest gives way first.
    void shorten_texts(std::size_t width) {
        constexpr std::size_t least = 6;
        while (room_for(true) + room_for(false) > width + 2) {
            std::size_t at = widths_.size();
            for (std::size_t i = 0; i < widths_.size(); ++i)
                if (is_shown_[i] && is_text(i) && widths_[i] > least &&
                    (at == widths_.size() || widths_[i] > widths_[at]))
                    at = i;
            if (at == widths_.size()) break;
            --widths_[at];
        }
    }

    const top_table& table_;
    std::size_t sorted_by_ = 0;
    std::vector<std::vector<std::string>> cells_;  // The titles first.
    std::vector<std::size_t> widths_;
    std::vector<bool> is_shown_;
    bool leaves_out_last_ = false;
};

}  // namespace

std::vector<std::string> lines_of(const top_table& table, const top_view& view, std::size_t width) {
    return layout(table, view, width).lines(width);
}

bool leaves_out_last_columns(const top_table& table, const top_view& view, std::size_t width) {
    return layout(table, view, width).leaves_out_last();
}

std::string curve_text(const std::deque<double>& values, std::size_t width, bool plain) {
    static constexpr std::array<const char*, 8> bars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const std::size_t count = std::min(width, values.size());
    double most = 0;
    for (std::size_t i = values.size() - count; i < values.size(); ++i)
        most = std::max(most, values[i]);
    std::string text(width - count, ' ');
    for (std::size_t i = values.size() - count; i < values.size(); ++i) {
        const double part = most > 0 ? values[i] / most : 0;
        if (plain)
            text += static_cast<char>('0' + std::lround(9 * part));
        else
            text += bars[static_cast<std::size_t>(std::lround(7 * part))];
    }
    return text;
}

}  // namespace amalgam::tool
