#pragma once

/// The version of these headers; CMake and the packages have it from here. Below 1.0 a change of
/// the minor number may change the interface, a change of the patch number does not.
#define AMALGAM_VERSION_MAJOR 0
#define AMALGAM_VERSION_MINOR 1  ///< See AMALGAM_VERSION_MAJOR.
#define AMALGAM_VERSION_PATCH 0  ///< See AMALGAM_VERSION_MAJOR.

namespace amalgam {

/// "0.1.0": the version of the library that the program runs with, which is that of its headers
/// unless it uses a shared library that was replaced since.
const char* version() noexcept;

}  // namespace amalgam
