#pragma once

#include <exception>

#include <amalgam/core/detail/in_words.hpp>
#include <amalgam/core/limited_log.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>

namespace amalgam::detail {

/// Passes a packet to the user's function, if set. Logs what the function throws.
inline void give_packet(const broadcast_medium::receiver& function, const_bytes packet) noexcept {
    const auto tell = [](const char* why) noexcept {
        limited_log(log_level::error, "fabric", "a receiver of broadcasts threw", {{"why", why}});
    };
    try {
        if (function) function(packet);
    } catch (const std::exception& what) {
        tell(text_of(what));
    } catch (...) {
        tell("an exception not derived from std::exception");
    }
}

}  // namespace amalgam::detail
