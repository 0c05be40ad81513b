#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/inject/code_image.hpp>

namespace amalgam {

/// What an image is built from. Every field but the first has a default that suits most.
struct image_source {
    std::string path;    ///< A file of C (".c") or C++.
    std::string name{};  ///< Of the image; empty: that of the file, without its ending.
    /// Empty: gcc or g++, or those that compile for that architecture elsewhere.
    std::string compiler{};
    architecture target = this_architecture();
    std::vector<std::string> flags{};      ///< More for the compiler: "-O3", "-Iinclude" …
    std::vector<std::string> libraries{};  ///< Static ones that become part of it: "libz.a" …
    std::size_t payload_alignment = 8;     ///< A power of two, up to 4096; above 8 it is copied.
};

/// Whether an image may be called so: its NAME_main is a function of C.
bool is_image_name(std::string_view text) noexcept;

/// Compiles a file and makes an image of it, which exports NAME_main, NAME_payload_get_max_size and
/// NAME_payload_init, as far as the file has them. What the compiler says goes to the standard
/// error stream.
/// Failure: throws error{not_found} when there is no such file or compiler, {invalid} when it does
///          not compile or has no NAME_main, {unsupported} for code that cannot travel, with what
///          about it and what to do.
/// Cost:    a compiler and a linker run.
code_image build_image(const image_source& from);

}  // namespace amalgam
