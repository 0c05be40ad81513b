#pragma once

#include <string>
#include <utility>
#include <vector>

namespace amalgam::perf {

/// A line of a diagram: what it is, and its points in the order of x.
struct plot_line {
    std::string name;
    std::vector<std::pair<double, double>> points;  ///< All above 0.
};

/// A diagram with both axes logarithmic.
struct plot_panel {
    std::string title;
    std::string y_label;  ///< With its unit.
    std::vector<plot_line> lines;
    std::string x_label = "size (bytes)";
    unsigned x_base = 8;  ///< There is a mark at each of its powers.
};

/// The panels side by side as an SVG image. A line's name has the same
/// colour and mark in all panels.
std::string to_svg(const std::vector<plot_panel>& panels);

}  // namespace amalgam::perf
