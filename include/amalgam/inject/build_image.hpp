#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/inject/code_image.hpp>

namespace amalgam {

/// Input of build_image(). The defaults of all fields but `path` suit most images.
struct image_source {
    std::string path;    ///< A C (".c") or C++ source file.
    std::string name{};  ///< Image name; empty: the file's name without extension.
    /// Empty: gcc or g++, or the cross compiler for `target`.
    std::string compiler{};
    architecture target = this_architecture();  ///< What it is compiled for; default: this machine.
    std::vector<std::string> flags{};      ///< Additional compiler flags: "-O3", "-Iinclude" …
    std::vector<std::string> libraries{};  ///< Static libraries to link in: "libz.a" …
    /// A power of two, up to 4096; above 8, payloads are copied.
    std::size_t payload_alignment = 8;
};

/// Whether `text` is a valid image name, i.e. NAME_main is a C function name.
bool is_image_name(std::string_view text) noexcept;

/// Compiles a file into an image that exports NAME_main and, if defined, NAME_payload_get_max_size
/// and NAME_payload_init. Compiler output goes to stderr.
/// Failure: throws error{not_found} if the file or compiler does not exist, {invalid} if it does
///          not compile or has no NAME_main, {unsupported} for code that cannot be injected, with
///          the cause and the remedy.
/// Cost:    runs a compiler and a linker.
code_image build_image(const image_source& from);

}  // namespace amalgam
