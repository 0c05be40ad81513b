#include "plate.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "options.hpp"

namespace heat {
namespace {

/// By definition: no bands, all points by index.
std::vector<double> model_of(const plate& of, std::size_t iterations) {
    std::vector<double> now = temperatures_at_start(of, 0, of.rows);
    const auto at = [&of](std::size_t r, std::size_t c) { return r * of.columns + c; };
    for (std::size_t i = 0; i < iterations; ++i) {
        std::vector<double> next = now;
        for (std::size_t r = 1; r + 1 < of.rows; ++r)
            for (std::size_t c = 1; c + 1 < of.columns; ++c)
                next[at(r, c)] = 0.25 * ((now[at(r - 1, c)] + now[at(r + 1, c)]) +
                                         (now[at(r, c - 1)] + now[at(r, c + 1)]));
        now = next;
    }
    return now;
}

TEST(band, a_whole_plate_is_as_the_definition_says) {
    for (const plate& size : {plate{12, 17}, plate{3, 3}, plate{1, 5}, plate{5, 1}, plate{1, 1}}) {
        band all(temperatures_at_start(size, 0, size.rows), size.columns);
        for (int i = 0; i < 20; ++i)
            all.step(nullptr, nullptr);
        EXPECT_EQ(all.temperatures(), model_of(size, 20)) << size.rows << " x " << size.columns;
    }
}

TEST(band, two_with_halos_are_one_to_the_last_bit) {
    const plate size{10, 13};
    for (std::size_t cut = 1; cut < size.rows; ++cut) {
        band upper(temperatures_at_start(size, 0, cut), size.columns);
        band lower(temperatures_at_start(size, cut, size.rows - cut), size.columns);
        for (int i = 0; i < 30; ++i) {
            const auto above = upper.last_row(), below = lower.first_row();
            upper.step(nullptr, below.data());
            lower.step(above.data(), nullptr);
        }
        std::vector<double> both = upper.temperatures();
        both.insert(both.end(), lower.temperatures().begin(), lower.temperatures().end());
        EXPECT_EQ(both, model_of(size, 30)) << cut;
        EXPECT_EQ(checksum(both), checksum(model_of(size, 30)));
    }
}

TEST(checksum, tells_one_bit) {
    EXPECT_NE(checksum({0.0, 1.0}), checksum({-0.0, 1.0}));
    EXPECT_NE(checksum({0.0, 1.0}), checksum({1.0, 0.0}));
}

TEST(picture, is_a_pgm_of_the_temperatures) {
    EXPECT_EQ(picture_of({1, 3}, {0, 50, 100}), "P5\n3 1\n255\n" + std::string("\0\x80\xff", 3));
}

TEST(options, wrong_ones_get_one_sentence) {
    options asked;
    EXPECT_EQ(read_options({"--rows", "9", "--bands", "4", "--sequential"}, asked), "");
    EXPECT_EQ(asked.size.rows, 9u);
    EXPECT_EQ(asked.bands, 4u);
    EXPECT_TRUE(asked.sequential);
    const auto sentence = [](const std::vector<std::string>& arguments) {
        options any;
        return read_options(arguments, any);
    };
    EXPECT_EQ(sentence({"--columns", "0"}),
              "--columns is \"0\", expected a number from 1 to 10000; example: --columns 100");
    EXPECT_EQ(sentence({"--rows", "4"}),
              "6 bands are too many for 4 rows, expected at most as many; example: --bands 4");
    EXPECT_EQ(sentence({"--workers", "7"}),
              "7 workers are too many for 6 bands, expected at most as many; example: --workers 6");
    EXPECT_EQ(sentence({"--picture"}),
              "--picture has no file, expected one; example: --picture heat.pgm");
    EXPECT_EQ(sentence({"fast"}).rfind("the option fast is not known, expected: heat ", 0), 0u);
}

}  // namespace
}  // namespace heat
