#pragma once

#include <array>
#include <cstddef>

#include <sys/eventfd.h>

#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// What a library needs at most to open a port: UCX takes about 16, libfabric's sockets some more.
inline constexpr std::size_t library_descriptors = 24;

/// Whether this process can still open so many. For libraries that do not say that they could not.
template <std::size_t Count = library_descriptors>
bool has_spare_descriptors() noexcept {
    std::array<unique_fd, Count> held;
    for (unique_fd& one : held) {
        one.reset(::eventfd(0, EFD_CLOEXEC));
        if (!one) return false;
    }
    return true;
}

}  // namespace amalgam::detail
