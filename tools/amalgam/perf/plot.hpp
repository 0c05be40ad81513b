#pragma once

#include <string>
#include <utility>
#include <vector>

namespace amalgam::perf {

/// A line of a diagram: its name, and its points in order of x.
struct plot_line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< All above 0.
};

/// A diagram with two logarithmic axes.
struct plot_panel {
    std::string title;
    std::string y_label;  ///< Includes the unit.
    std::vector<plot_line> lines;
    std::string x_label = "size (bytes)";
    unsigned x_base = 8;  ///< Ticks are at its powers.
};

/// The panels side by side as an SVG image. A line name has the same color and mark in all panels.
std::string to_svg(const std::vector<plot_panel>& panels);

}  // namespace amalgam::perf
