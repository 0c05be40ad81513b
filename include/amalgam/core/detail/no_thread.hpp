#pragma once

#include <exception>
#include <string>
#include <string_view>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// For who needs a thread and cannot start one. `task`: what for, as "for a watchdog".
inline error no_thread(std::string_view task, const std::exception& why) {
    return {errc::no_memory, "cannot create a thread " + std::string(task) + ": " + why.what() +
                                 "; raise the limit on processes (ulimit -u)"};
}

}  // namespace amalgam::detail
