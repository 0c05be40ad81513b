#include "filter.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace image_pipeline {
namespace {

constexpr std::size_t radius = 8;
constexpr std::size_t points = 2 * radius + 1;
constexpr unsigned weights_log2 = 2 * radius;  // Of the sum of all weights.

/// Row 2 * radius of Pascal's triangle.
constexpr std::array<std::uint32_t, points> weights = [] {
    std::array<std::uint32_t, points> row{1};
    for (std::size_t n = 1; n < points; ++n)
        for (std::size_t k = n; k > 0; --k)
            row[k] += row[k - 1];
    return row;
}();

/// Weighted sums of lines of bytes. Works on whole lines, which compilers vectorize.
class weighing {
public:
    explicit weighing(std::size_t bytes) : sums_(bytes) {}

    void sum_up(const std::array<const std::uint8_t*, points>& lines, std::uint8_t* into) {
        constexpr std::uint32_t half = std::uint32_t{1} << (weights_log2 - 1);
        std::fill(sums_.begin(), sums_.end(), half);
        for (std::size_t k = 0; k < points; ++k)
            for (std::size_t i = 0; i < sums_.size(); ++i)
                sums_[i] += weights[k] * lines[k][i];
        for (std::size_t i = 0; i < sums_.size(); ++i)
            into[i] = static_cast<std::uint8_t>(sums_[i] >> weights_log2);
    }

private:
    std::vector<std::uint32_t> sums_;
};

image blurred_along_rows(const image& what) {
    const std::size_t row_bytes = std::size_t{what.width} * 3;
    image result = what;
    weighing weigh(row_bytes);
    std::vector<std::uint8_t> wider(row_bytes + 2 * radius * 3);
    std::array<const std::uint8_t*, points> shifted;
    for (std::size_t k = 0; k < points; ++k)
        shifted[k] = wider.data() + k * 3;
    for (std::size_t y = 0; y < what.height; ++y) {
        const std::uint8_t* row = what.pixels.data() + y * row_bytes;
        std::copy(row, row + row_bytes, wider.data() + radius * 3);
        for (std::size_t i = 0; i < radius * 3; ++i) {
            wider[i] = row[i % 3];
            wider[wider.size() - 1 - i] = row[row_bytes - 1 - i % 3];
        }
        weigh.sum_up(shifted, result.pixels.data() + y * row_bytes);
    }
    return result;
}

image blurred_along_columns(const image& what) {
    const std::size_t row_bytes = std::size_t{what.width} * 3;
    image result = what;
    weighing weigh(row_bytes);
    std::array<const std::uint8_t*, points> rows;
    for (std::size_t y = 0; y < what.height; ++y) {
        for (std::size_t k = 0; k < points; ++k) {
            const std::size_t last = what.height - 1;
            const std::size_t row = y + k < radius ? 0 : std::min(y + k - radius, last);
            rows[k] = what.pixels.data() + row * row_bytes;
        }
        weigh.sum_up(rows, result.pixels.data() + y * row_bytes);
    }
    return result;
}

std::vector<int> brightness_of(const image& what) {
    std::vector<int> brightness(what.pixels.size() / 3);
    for (std::size_t i = 0; i < brightness.size(); ++i) {
        const std::uint8_t* pixel = what.pixels.data() + i * 3;
        brightness[i] = (77 * pixel[0] + 150 * pixel[1] + 29 * pixel[2] + 128) >> 8;
    }
    return brightness;
}

}  // namespace

image blurred(const image& what) {
    return blurred_along_columns(blurred_along_rows(what));
}

image edges(const image& what) {
    const std::vector<int> brightness = brightness_of(what);
    image result = what;
    std::uint8_t* into = result.pixels.data();
    for (std::size_t y = 0; y < what.height; ++y) {
        const auto row_at = [&](std::size_t row) { return brightness.data() + row * what.width; };
        const int* above = row_at(y == 0 ? 0 : y - 1);
        const int* row = row_at(y);
        const int* below = row_at(std::min<std::size_t>(y + 1, what.height - 1));
        for (std::size_t x = 0; x < what.width; ++x) {
            const std::size_t left = x == 0 ? 0 : x - 1;
            const std::size_t right = std::min<std::size_t>(x + 1, what.width - 1);
            const int across = above[right] + 2 * row[right] + below[right] - above[left] -
                               2 * row[left] - below[left];
            const int down = below[left] + 2 * below[x] + below[right] - above[left] -
                             2 * above[x] - above[right];
            const int change = std::min(std::abs(across) + std::abs(down), 255);
            into = std::fill_n(into, 3, static_cast<std::uint8_t>(change));
        }
    }
    return result;
}

image outlines(const image& what) {
    return edges(blurred(what));
}

}  // namespace image_pipeline
