#pragma once

#include <string_view>

namespace amalgam::detail {

/// A file of this folder, from the build.
struct page_file {
    std::string_view path;  ///< "/page.js"
    std::string_view type;
    std::string_view text;
};

/// Null if there is none.
const page_file* find_page_file(std::string_view path) noexcept;

}  // namespace amalgam::detail
