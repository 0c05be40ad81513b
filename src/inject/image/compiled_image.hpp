#pragma once

#include <string>

#include <amalgam/inject/build_image.hpp>

#include "temp_folder.hpp"

namespace amalgam {

/// An image compiled from source text, for tests. `how`: its path gives only the extension.
inline code_image compiled_image(const std::string& text, image_source how) {
    const temp_folder own;
    how.path = own.with(how.name + how.path, text);
    return build_image(how);
}

}  // namespace amalgam
