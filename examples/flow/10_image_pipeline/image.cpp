#include "image.hpp"

#include <stdexcept>

namespace image_pipeline {

std::size_t pixel_bytes(std::uint64_t width, std::uint64_t height) {
    const std::string size = std::to_string(width) + " x " + std::to_string(height);
    if (width == 0 || height == 0)
        throw std::runtime_error("it is " + size + " pixels, expected at least one");
    // Checks each side first, so that their product cannot overflow.
    if (width > most_columns_or_rows || height > most_columns_or_rows ||
        width * height > most_pixels)
        throw std::runtime_error("it is " + size + " pixels, expected at most " +
                                 std::to_string(most_columns_or_rows) + " a side and " +
                                 std::to_string(most_pixels) + " in all");
    return static_cast<std::size_t>(width * height * 3);
}

image blank(std::uint64_t width, std::uint64_t height) {
    return {static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height),
            std::vector<std::uint8_t>(pixel_bytes(width, height))};
}

format format_of(std::string_view file) {
    if (file.substr(0, 2) == "P6") return format::ppm;
    if (file.substr(0, 8) == "\x89PNG\r\n\x1a\n") return format::png;
    throw std::runtime_error("its format is unknown, expected a PPM (P6) or PNG file");
}

image decoded(std::string_view file, format as) {
    return as == format::ppm ? decoded_ppm(file) : decoded_png(file);
}

std::string encoded(const image& what, format as) {
    return as == format::ppm ? encoded_ppm(what) : encoded_png(what);
}

}  // namespace image_pipeline
