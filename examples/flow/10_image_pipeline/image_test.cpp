#include "image.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include <amalgam/core.hpp>

#include "filter.hpp"
#include "options.hpp"
#include "sample.hpp"

namespace image_pipeline {
namespace {

image decoded(const std::string& file) {
    return image_pipeline::decoded(file, format_of(file));
}

/// What is wrong with a file's bytes; empty if nothing.
std::string wrong_with(const std::string& file) {
    try {
        decoded(file);
        return {};
    } catch (const std::runtime_error& why) {
        return why.what();
    }
}

std::string of_pixels(const std::string& header, std::size_t pixels) {
    return header + std::string(pixels * 3, '\x40');
}

TEST(image, comes_back_from_its_file_as_it_was) {
    for (const format as : {format::ppm, format::png}) {
        for (const image& what : {sample(1, 20), sample(2, 41), blank(1, 1), blank(7, 1)}) {
            const std::string file = encoded(what, as);
            EXPECT_EQ(format_of(file), as);
            EXPECT_EQ(decoded(file), what);
            EXPECT_EQ(encoded(what, as), file);
        }
    }
}

TEST(ppm, header_may_have_any_space_and_comments) {
    const image plain = decoded(of_pixels("P6\n2 3\n255\n", 6));
    EXPECT_EQ(plain.width, 2u);
    EXPECT_EQ(plain.height, 3u);
    EXPECT_EQ(decoded(of_pixels("P6 2\t3\r\n255 ", 6)), plain);
    EXPECT_EQ(decoded(of_pixels("P6 # 9 9\n#\n2 #\n 3 255\n", 6)), plain);
    EXPECT_EQ(decoded(of_pixels("P6\n2 3\n255\n", 9)), plain);  // Ignores the rest.
}

TEST(ppm, what_is_wrong_is_told) {
    EXPECT_EQ(wrong_with(of_pixels("P6\n2 3\n255\n", 5)), "it ends after 15 of 18 bytes of pixels");
    EXPECT_EQ(wrong_with("P6\n2 3\n65535\n"), "its maximum value is 65535, expected 255");
    EXPECT_EQ(wrong_with("P6\n2 3\n255"),
              "its header has no end, expected a space before the pixels");
    EXPECT_EQ(wrong_with("P6\n2 x"), "it has no height, expected a number");
    EXPECT_EQ(wrong_with("P6\n-2 3\n255\n"), "it has no width, expected a number");
    EXPECT_EQ(wrong_with("P6 #"), "it has no width, expected a number");
    EXPECT_EQ(wrong_with("P6 0 3 255\n"), "it is 0 x 3 pixels, expected at least one");
    EXPECT_EQ(wrong_with("P5\n2 3\n255\n"),
              "its format is unknown, expected a PPM (P6) or PNG file");
}

TEST(ppm, sizes_that_would_overflow_are_refused) {
    const std::string most = ", expected at most 32768 a side and 67108864 in all";
    EXPECT_EQ(wrong_with("P6 40000 1 255\n"), "it is 40000 x 1 pixels" + most);
    EXPECT_EQ(wrong_with("P6 20000 20000 255\n"), "it is 20000 x 20000 pixels" + most);
    EXPECT_EQ(wrong_with("P6 999999999 999999999 255\n"),
              "it is 999999999 x 999999999 pixels" + most);
    EXPECT_EQ(wrong_with("P6 4294967297 1 255\n"), "its width has too many digits");
}

TEST(png, sizes_that_are_too_large_are_refused_before_the_pixels) {
    std::string file = encoded(blank(1, 1), format::png);
    const std::string size("\0\0\x9c\x40\0\0\x9c\x40", 8);  // 40000 per side
    file.replace(16, 8, size);
    // The header's checksum covers its name and 13 bytes.
    const auto sum = ::crc32(0, reinterpret_cast<const unsigned char*>(file.data()) + 12, 4 + 13);
    for (unsigned i = 0; i < 4; ++i)
        file[29 + i] = static_cast<char>(sum >> (24 - 8 * i));
    EXPECT_EQ(wrong_with(file).rfind("it is 40000 x 40000 pixels, expected at most ", 0), 0u)
        << wrong_with(file);
}

TEST(image, every_cut_is_told) {
    for (const format as : {format::ppm, format::png}) {
        const std::string file = encoded(sample(4, 12), as);
        for (std::size_t bytes = 0; bytes < file.size(); ++bytes) {
            if (as == format::png && bytes >= file.size() - 12) break;  // The end is optional.
            EXPECT_NE(wrong_with(file.substr(0, bytes)), "") << bytes;
        }
    }
}

TEST(image, no_bytes_make_more_than_a_sentence) {
    amalgam::seeded_random random(7);
    for (const format as : {format::ppm, format::png}) {
        const std::string file = encoded(sample(5, 16), as);
        for (int i = 0; i < 4000; ++i) {
            std::string changed = file;
            for (std::uint64_t times = 1 + random.below(4); times > 0; --times) {
                // Mostly in the header, where it matters most.
                const std::size_t among = random.chance(0.7) ? 60 : changed.size();
                changed[random.below(among)] = static_cast<char>(random());
            }
            try {
                const image what = decoded(changed);
                EXPECT_EQ(what.pixels.size(), std::size_t{what.width} * what.height * 3);
            } catch (const std::runtime_error& why) {
                EXPECT_NE(std::string(why.what()), "");
            }
        }
    }
}

/// By definition, point by point.
image blurred_by_definition(const image& what) {
    std::vector<double> weight{1};
    while (weight.size() < 17) {
        weight.push_back(0);
        for (std::size_t k = weight.size() - 1; k > 0; --k)
            weight[k] += weight[k - 1];
    }
    const auto pass = [&weight](const image& from, int right, int down) {
        const auto clamped = [](std::int64_t at, std::uint32_t size) {
            return static_cast<std::size_t>(std::clamp<std::int64_t>(at, 0, size - 1));
        };
        image into = from;
        for (std::size_t i = 0; i < into.pixels.size(); ++i) {
            const auto x = static_cast<std::int64_t>(i / 3 % from.width);
            const auto y = static_cast<std::int64_t>(i / 3 / from.width);
            double sum = 0;
            for (int k = -8; k <= 8; ++k)
                sum += weight[static_cast<std::size_t>(k + 8)] *
                       from.pixels[(clamped(y + k * down, from.height) * from.width +
                                    clamped(x + k * right, from.width)) *
                                       3 +
                                   i % 3];
            into.pixels[i] = static_cast<std::uint8_t>(sum / 65536 + 0.5);
        }
        return into;
    };
    return pass(pass(what, 1, 0), 0, 1);
}

TEST(blurred, is_as_the_definition_says) {
    EXPECT_EQ(blurred(sample(3, 24)), blurred_by_definition(sample(3, 24)));
    for (const auto& [width, height] : {std::pair{1, 1}, {1, 30}, {30, 1}, {5, 4}}) {
        image what = blank(static_cast<unsigned>(width), static_cast<unsigned>(height));
        amalgam::seeded_random random(3);
        for (std::uint8_t& each : what.pixels)
            each = static_cast<std::uint8_t>(random());
        EXPECT_EQ(blurred(what), blurred_by_definition(what)) << width << " x " << height;
    }
}

TEST(edges, are_where_the_brightness_changes) {
    image what = blank(6, 3);
    EXPECT_EQ(edges(what), what);
    for (std::size_t i = 0; i < what.pixels.size(); ++i)
        if (i / 3 % 6 >= 3) what.pixels[i] = 40;
    const image found = edges(what);
    for (std::size_t i = 0; i < found.pixels.size(); ++i) {
        const std::size_t x = i / 3 % 6;
        EXPECT_EQ(found.pixels[i], x == 2 || x == 3 ? 160 : 0) << i;
    }
}

TEST(outlines, are_the_same_on_every_machine) {
    const image found = outlines(sample(9, 64));
    const std::string_view bytes(reinterpret_cast<const char*>(found.pixels.data()),
                                 found.pixels.size());
    EXPECT_EQ(amalgam::fnv1a(bytes), 0x666db6f07a177278u);
}

TEST(options, wrong_ones_get_one_sentence) {
    options asked;
    EXPECT_EQ(read_options({"a.png", "--into", "x", "--workers", "2", "--", "-b"}, asked), "");
    EXPECT_EQ(asked.inputs, (std::vector<std::string>{"a.png", "-b"}));
    EXPECT_EQ(asked.workers, 2u);
    const auto sentence = [](const std::vector<std::string>& arguments) {
        options any;
        return read_options(arguments, any);
    };
    EXPECT_EQ(sentence({"--workers", "x"}),
              "--workers is \"x\", expected a number from 1 to 1000; example: --workers 8");
    EXPECT_EQ(sentence({"a.png"}).rfind("there is no folder to write to, expected: ", 0), 0u);
    EXPECT_EQ(sentence({"--into", "x"}).rfind("expected either images or --generate: ", 0), 0u);
    EXPECT_EQ(sentence({"--fast"}).rfind("the option --fast is not known, expected: ", 0), 0u);
}

}  // namespace
}  // namespace image_pipeline
