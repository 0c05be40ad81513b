#include "sample.hpp"

#include <array>

#include <amalgam/core.hpp>

namespace image_pipeline {
namespace {

struct disc {
    std::int64_t x, y, radius;
    std::array<std::uint8_t, 3> color;

    bool covers(std::int64_t at_x, std::int64_t at_y) const {
        return (at_x - x) * (at_x - x) + (at_y - y) * (at_y - y) < radius * radius;
    }
};

}  // namespace

image sample(std::uint32_t number, std::uint32_t side) {
    image what = blank(side + side / 8 * (number % 5), side + side / 8 * (number % 3));
    amalgam::seeded_random random(number);
    const auto below = [&random](std::uint32_t bound) {
        return static_cast<std::int64_t>(random.below(bound));
    };
    const auto shade = [&below] { return static_cast<std::uint8_t>(below(256)); };
    std::array<disc, 6> discs;
    for (disc& each : discs) {
        each.x = below(what.width);
        each.y = below(what.height);
        each.radius = 1 + below(side / 4 + 1);
        for (std::uint8_t& part : each.color)
            part = shade();
    }
    std::uint8_t* into = what.pixels.data();
    for (std::uint32_t y = 0; y < what.height; ++y) {
        for (std::uint32_t x = 0; x < what.width; ++x) {
            std::array<std::uint8_t, 3> color{static_cast<std::uint8_t>(x * 256ull / what.width),
                                              static_cast<std::uint8_t>(y * 256ull / what.height),
                                              static_cast<std::uint8_t>(number * 16)};
            for (const disc& each : discs)
                if (each.covers(x, y)) color = each.color;
            const std::uint64_t noise = random();
            for (unsigned i = 0; i < 3; ++i)
                *into++ = static_cast<std::uint8_t>(color[i] / 8 * 7 + (noise >> (i * 8)) % 32);
        }
    }
    return what;
}

}  // namespace image_pipeline
