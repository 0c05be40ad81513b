#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace image_pipeline {

enum class format : std::uint8_t { ppm, png };

/// An RGB picture, one byte per channel.
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

/// Larger images are refused before allocating memory for them.
constexpr std::uint32_t most_columns_or_rows = 32768;
constexpr std::uint64_t most_pixels = std::uint64_t{64} << 20;

/// Size in bytes of the pixels of such an image.
/// Failure: throws std::runtime_error if a side is 0 or it is too large.
std::size_t pixel_bytes(std::uint64_t width, std::uint64_t height);

/// A black image of that size.
/// Failure: as pixel_bytes().
image blank(std::uint64_t width, std::uint64_t height);

/// Format of a file by its first bytes: P6 or PNG.
/// Failure: throws std::runtime_error if it is neither.
format format_of(std::string_view file);

/// Decodes the bytes of a file, whatever they are.
/// Failure: throws std::runtime_error that says what is wrong.
image decoded(std::string_view file, format as);
/// The bytes of a file: the same for the same image.
std::string encoded(const image& what, format as);

// The functions for one format each, used by the two above. In ppm.cpp and png.cpp.
image decoded_ppm(std::string_view file);
image decoded_png(std::string_view file);
std::string encoded_ppm(const image& what);
std::string encoded_png(const image& what);

}  // namespace image_pipeline
