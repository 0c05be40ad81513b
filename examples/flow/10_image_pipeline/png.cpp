#include <cstring>
#include <stdexcept>
#include <string>

#include <png.h>

#include "image.hpp"

namespace image_pipeline {
namespace {

/// libpng's state of one image being read or written.
struct png_control : png_image {
    png_control() {
        std::memset(static_cast<png_image*>(this), 0, sizeof(png_image));
        version = PNG_IMAGE_VERSION;
    }
    png_control(const png_control&) = delete;
    png_control& operator=(const png_control&) = delete;
    ~png_control() { png_image_free(this); }

    void check(const char* failed) const {
        if (PNG_IMAGE_FAILED(*this))
            throw std::runtime_error(std::string(failed) + " (libpng: " + message + ")");
    }
};

}  // namespace

image decoded_png(std::string_view file) {
    png_control control;
    png_image_begin_read_from_memory(&control, file.data(), file.size());
    control.check("it is not a complete PNG");
    image what = blank(control.width, control.height);
    control.format = PNG_FORMAT_RGB;
    const png_color behind{0, 0, 0};  // Transparent pixels become black.
    png_image_finish_read(&control, &behind, what.pixels.data(), 0, nullptr);
    control.check("it is not a complete PNG");
    return what;
}

std::string encoded_png(const image& what) {
    png_control control;
    control.width = what.width;
    control.height = what.height;
    control.format = PNG_FORMAT_RGB;
    control.flags = PNG_IMAGE_FLAG_FAST;
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(control);
    std::string file(bytes, '\0');
    png_image_write_to_memory(&control, file.data(), &bytes, 0, what.pixels.data(), 0, nullptr);
    control.check("it cannot be encoded as PNG");
    file.resize(bytes);
    return file;
}

}  // namespace image_pipeline
