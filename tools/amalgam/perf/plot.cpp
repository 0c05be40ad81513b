#include "perf/plot.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace amalgam::perf {
namespace {

constexpr double panel_width = 560, panel_height = 400;
constexpr double left = 78, right = 20, top = 46, bottom = 56;
constexpr double legend_row = 22, legend_mark = 38, legend_gap = 24;

/// Approximate upper bound: fonts differ, and an SVG image cannot measure.
double width_of(const std::string& text, double font_size) {
    return 0.62 * font_size * static_cast<double>(text.size());
}

// Distinguishable for the color-blind, and by the marks without any color.
constexpr const char* colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                   "#e69f00", "#56b4e9", "#000000", "#8a6d3b"};

std::string escaped(const std::string& text) {
    std::string safe;
    for (char c : text)
        safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
    return safe;
}

/// "64", "4 Ki", "1 Mi"
std::string binary(double value) {
    static constexpr const char* units[] = {"", " Ki", " Mi", " Gi"};
    int unit = 0;
    for (; value >= 1024 && unit < 3; ++unit)
        value /= 1024;
    return fmt::format("{:g}{}", value, units[unit]);
}

std::string mark(std::size_t kind, double x, double y) {
    switch (kind % 4) {
        case 0:
            return fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='4'/>", x, y);
        case 1:
            return fmt::format("<rect x='{:.1f}' y='{:.1f}' width='7' height='7'/>", x - 3.5,
                               y - 3.5);
        case 2:
            return fmt::format("<path d='M{:.1f} {:.1f}l4.5 8h-9z'/>", x, y - 5);
        default:
            return fmt::format("<path d='M{:.1f} {:.1f}l5 5l-5 5l-5 -5z'/>", x, y - 5);
    }
}

/// Maps a value to a position on an axis, by its logarithm.
struct axis {
    double low, high;  ///< Values.
    double from, to;   ///< Positions.
    double at(double value) const {
        return from + (to - from) * std::log(value / low) / std::log(high / low);
    }
};

class drawing {
public:
    explicit drawing(const std::vector<plot_panel>& panels) : panels_(panels) {
        for (const plot_panel& panel : panels)
            for (const plot_line& line : panel.lines)
                if (std::find(names_.begin(), names_.end(), line.name) == names_.end())
                    names_.push_back(line.name);
    }

    std::string svg() {
        double legend_column = 0;
        for (const std::string& name : names_)
            legend_column = std::max(legend_column, legend_mark + width_of(name, 13) + legend_gap);
        const double width =
            std::max(panel_width * static_cast<double>(panels_.size()), left + legend_column);
        const auto columns =
            names_.empty() ? 1 : static_cast<std::size_t>((width - left) / legend_column);
        const auto rows = (names_.size() + columns - 1) / columns;
        const double height = panel_height + legend_row * static_cast<double>(rows) + 16;
        text_ = fmt::format(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' "
            "height='{1}' font-family='sans-serif' font-size='13'>\n"
            "<rect width='100%' height='100%' fill='white'/>\n",
            width, height);
        for (std::size_t i = 0; i < panels_.size(); ++i)
            panel(panels_[i], panel_width * static_cast<double>(i));
        for (std::size_t i = 0; i < names_.size(); ++i) {
            const double x = left + legend_column * static_cast<double>(i % columns);
            const double y = panel_height + 8 + legend_row * static_cast<double>(i / columns);
            begin_line(i);
            text_ +=
                fmt::format("<path d='M{} {}h30' fill='none'/>{}</g>\n", x, y, mark(i, x + 15, y));
            label(x + legend_mark, y + 4.5, "start", names_[i]);
        }
        return text_ + "</svg>\n";
    }

private:
    void label(double x, double y, const char* anchor, const std::string& text,
               const std::string& more = "") {
        text_ += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'{}>{}</text>\n", x, y,
                             anchor, more, escaped(text));
    }
    void grid(double x1, double y1, double x2, double y2) {
        text_ +=
            fmt::format("<path d='M{:.1f} {:.1f}L{:.1f} {:.1f}' stroke='#dddddd' fill='none'/>\n",
                        x1, y1, x2, y2);
    }
    void begin_line(std::size_t i) {
        const char* colour = colours[i % std::size(colours)];
        text_ += fmt::format("<g stroke='{0}' fill='{0}' stroke-width='2'>", colour);
    }

    void panel(const plot_panel& what, double x0) {
        axis x{1, 2, x0 + left, x0 + panel_width - right};
        axis y{1, 10, panel_height - bottom, top};
        limits(what, x, y);
        // As large as fits its panel.
        const double size = std::min(15.0, 15 * (panel_width - 16) / width_of(what.title, 15));
        label(x0 + panel_width / 2, 24, "middle", what.title,
              fmt::format(" font-weight='bold' font-size='{:.1f}'", size));
        for (double value = x.low; value <= x.high * 1.001; value *= what.x_base) {
            grid(x.at(value), y.from, x.at(value), y.to);
            label(x.at(value), y.from + 18, "middle",
                  what.x_base == 10 ? fmt::format("{:g}", value) : binary(value));
        }
        label((x.from + x.to) / 2, y.from + 40, "middle", what.x_label);
        for (double value = y.low; value <= y.high * 1.001; value *= 10) {
            grid(x.from, y.at(value), x.to, y.at(value));
            label(x.from - 8, y.at(value) + 4.5, "end", fmt::format("{:g}", value));
        }
        const double middle = (y.from + y.to) / 2;
        label(x0 + 20, middle, "middle", what.y_label,
              fmt::format(" transform='rotate(-90 {:.1f} {:.1f})'", x0 + 20, middle));
        text_ += fmt::format(
            "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' "
            "stroke='#666666'/>\n",
            x.from, y.to, x.to - x.from, y.from - y.to);
        for (const plot_line& line : what.lines)
            curve(line, x, y);
    }

    /// Whole powers around all points: of x_base along x, of 10 along y.
    static void limits(const plot_panel& what, axis& x, axis& y) {
        double least_x = 1e300, most_x = 0, least_y = 1e300, most_y = 0;
        for (const plot_line& line : what.lines)
            for (const auto& [px, py] : line.points) {
                least_x = std::min(least_x, px);
                most_x = std::max(most_x, px);
                least_y = std::min(least_y, py);
                most_y = std::max(most_y, py);
            }
        if (most_x == 0) return;
        const double base = what.x_base;
        x.low = std::pow(base, std::floor(std::log(least_x) / std::log(base) + 1e-9));
        x.high = std::pow(base, std::ceil(std::log(most_x) / std::log(base) - 1e-9));
        y.low = std::pow(10, std::floor(std::log10(least_y)));
        y.high = std::pow(10, std::ceil(std::log10(most_y)));
        if (x.high <= x.low) x.high = base * x.low;
        if (y.high <= y.low) y.high = 10 * y.low;
    }

    void curve(const plot_line& line, const axis& x, const axis& y) {
        const auto number = static_cast<std::size_t>(
            std::find(names_.begin(), names_.end(), line.name) - names_.begin());
        begin_line(number);
        std::string path, marks;
        for (const auto& [px, py] : line.points) {
            path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.at(px), y.at(py));
            marks += mark(number, x.at(px), y.at(py));
        }
        text_ += fmt::format("<path d='{}' fill='none'/>{}</g>\n", path, marks);
    }

    const std::vector<plot_panel>& panels_;
    std::vector<std::string> names_;
    std::string text_;
};

}  // namespace

std::string to_svg(const std::vector<plot_panel>& panels) {
    return drawing(panels).svg();
}

}  // namespace amalgam::perf
