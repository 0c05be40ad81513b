#include <cstring>
#include <stdexcept>
#include <string>

#include "image.hpp"

namespace image_pipeline {
namespace {

/// The text before the pixels: numbers between spaces and comments.
class ppm_header {
public:
    explicit ppm_header(std::string_view file) : file_(file) {}

    std::uint64_t number(const char* what) {
        skip_space();
        std::uint64_t value = 0;
        const std::size_t first = at_;
        for (; at_ < file_.size() && is_digit(file_[at_]); ++at_) {
            if (at_ - first == 9)
                throw std::runtime_error(std::string("its ") + what + " has too many digits");
            value = value * 10 + static_cast<std::uint64_t>(file_[at_] - '0');
        }
        if (at_ == first)
            throw std::runtime_error(std::string("it has no ") + what + ", expected a number");
        return value;
    }
    /// After the single character that ends the header.
    std::string_view pixels() {
        if (at_ == file_.size() || !is_space(file_[at_]))
            throw std::runtime_error("its header has no end, expected a space before the pixels");
        return file_.substr(at_ + 1);
    }

private:
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

    void skip_space() {
        for (; at_ < file_.size(); ++at_) {
            if (file_[at_] == '#')
                while (at_ + 1 < file_.size() && file_[at_] != '\n')
                    ++at_;
            else if (!is_space(file_[at_]))
                return;
        }
    }

    std::string_view file_;
    std::size_t at_ = 2;  // After P6.
};

}  // namespace

image decoded_ppm(std::string_view file) {
    ppm_header header(file);
    const std::uint64_t width = header.number("width");
    const std::uint64_t height = header.number("height");
    const std::uint64_t brightest = header.number("maximum value");
    if (brightest != 255)
        throw std::runtime_error("its maximum value is " + std::to_string(brightest) +
                                 ", expected 255");
    const std::string_view pixels = header.pixels();
    const std::size_t bytes = pixel_bytes(width, height);
    if (pixels.size() < bytes)
        throw std::runtime_error("it ends after " + std::to_string(pixels.size()) + " of " +
                                 std::to_string(bytes) + " bytes of pixels");
    image what = blank(width, height);
    std::memcpy(what.pixels.data(), pixels.data(), bytes);
    return what;
}

std::string encoded_ppm(const image& what) {
    std::string file =
        "P6\n" + std::to_string(what.width) + " " + std::to_string(what.height) + "\n255\n";
    file.append(reinterpret_cast<const char*>(what.pixels.data()), what.pixels.size());
    return file;
}

}  // namespace image_pipeline
