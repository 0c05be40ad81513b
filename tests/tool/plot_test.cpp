#include "perf/plot.hpp"

#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace amalgam::perf {
namespace {

// Less than a typical font's average width: what exceeds its space even so is certainly cut off.
constexpr double narrow = 0.5;

TEST(plot, shows_long_titles_and_names_whole) {
    const std::string name = "amalgam ofi+tcp://[fe80::1234:5678:9abc:def0]:70000 and more of it";
    for (const std::size_t panels : {1u, 2u}) {
        const plot_panel panel{
            "get-block-bandwidth: one-sided reads between allocated blocks, and "
            "a few words more",
            "bandwidth (GiB/s)",
            {{name + "1", {{8, 1}, {64, 2}}}, {name + "2", {{8, 2}, {64, 3}}}}};
        const std::string svg = to_svg(std::vector(panels, panel));
        std::smatch found;
        ASSERT_TRUE(std::regex_search(svg, found, std::regex("width='([0-9.]+)'")));
        const double width = std::stod(found[1]);
        const double panel_width = width / static_cast<double>(panels);
        const std::regex text(
            "<text x='([0-9.]+)' y='[0-9.]+' text-anchor='(\\w+)'"
            "( font-weight='bold' font-size='([0-9.]+)')?>([^<]*)</text>");
        std::size_t titles = 0, names = 0;
        for (std::sregex_iterator one(svg.begin(), svg.end(), text), end; one != end; ++one) {
            const double x = std::stod((*one)[1]);
            const double size = (*one)[4].matched ? std::stod((*one)[4]) : 13;
            const double wide = narrow * size * static_cast<double>((*one)[5].length());
            const std::string anchor = (*one)[2];
            const double from = anchor == "end" ? x - wide : anchor == "middle" ? x - wide / 2 : x;
            EXPECT_GE(from, 0) << (*one)[5];
            EXPECT_LE(from + wide, width) << (*one)[5];
            if ((*one)[4].matched) {
                ++titles;
                EXPECT_LE(wide, panel_width) << (*one)[5];
            }
            if ((*one)[5].str().starts_with(name)) ++names;
        }
        EXPECT_EQ(titles, panels);
        EXPECT_EQ(names, 2u);
    }
}

}  // namespace
}  // namespace amalgam::perf
