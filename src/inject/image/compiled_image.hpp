#pragma once

#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include <amalgam/inject/build_image.hpp>

namespace amalgam {

/// An image compiled from source text, for tests. `how`: its path gives only the extension.
inline code_image compiled_image(const std::string& text, image_source how) {
    how.path = testing::TempDir() + how.name + std::to_string(::getpid()) + how.path;
    std::ofstream(how.path) << text;
    const code_image image = build_image(how);
    ::unlink(how.path.c_str());
    return image;
}

}  // namespace amalgam
