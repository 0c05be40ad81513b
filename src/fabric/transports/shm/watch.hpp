#pragma once

#include <cstdint>

namespace amalgam::detail {

/// Owner of a descriptor in a port's epoll set.
struct shm_watch {
    enum class kind : std::uint8_t { listener, pending, link, process, timer };

    kind what;
    void* owner = nullptr;  ///< The shm_pending or shm_link.
};

}  // namespace amalgam::detail
