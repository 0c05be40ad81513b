#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace image_pipeline {

enum class format : std::uint8_t { ppm, png };

/// A picture in red, green and blue, a byte each.
struct image {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::vector<std::uint8_t> pixels;  ///< Row by row: width * height * 3 bytes.

    template <typename Archive>
    void serialize(Archive& archive) {
        archive(width, height, pixels);
    }
    friend bool operator==(const image&, const image&) = default;
};

/// Larger ones are refused before memory is taken for them.
constexpr std::uint32_t most_columns_or_rows = 32768;
constexpr std::uint64_t most_pixels = std::uint64_t{64} << 20;

/// How many bytes the pixels of an image of that size are.
/// Failure: throws std::runtime_error when one of both is 0 or it is too large.
std::size_t pixel_bytes(std::uint64_t width, std::uint64_t height);

/// An image of that size, black.
/// Failure: as pixel_bytes().
image blank(std::uint64_t width, std::uint64_t height);

/// What format the bytes of a file begin as: P6 or PNG.
/// Failure: throws std::runtime_error when it is neither.
format format_of(std::string_view file);

/// The image in the bytes of a file, of any content.
/// Failure: throws std::runtime_error, which says what is wrong with them.
image decoded(std::string_view file, format as);
/// The bytes of a file: the same for the same image.
std::string encoded(const image& what, format as);

// Of one format each: what the two above choose from. In ppm.cpp and png.cpp.
image decoded_ppm(std::string_view file);
image decoded_png(std::string_view file);
std::string encoded_ppm(const image& what);
std::string encoded_png(const image& what);

}  // namespace image_pipeline
