#include <cstring>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

namespace amalgam {

std::string_view name(errc code) noexcept {
    switch (code) {
        case errc::ok:
            return "ok";
        case errc::timed_out:
            return "timed_out";
        case errc::overloaded:
            return "overloaded";
        case errc::corrupt:
            return "corrupt";
        case errc::unavailable:
            return "unavailable";
        case errc::unreachable:
            return "unreachable";
        case errc::disconnected:
            return "disconnected";
        case errc::invalid:
            return "invalid";
        case errc::not_found:
            return "not_found";
        case errc::denied:
            return "denied";
        case errc::mismatch:
            return "mismatch";
        case errc::unsupported:
            return "unsupported";
        case errc::too_large:
            return "too_large";
        case errc::in_use:
            return "in_use";
        case errc::canceled:
            return "canceled";
        case errc::no_memory:
            return "no_memory";
        case errc::handler_failed:
            return "handler_failed";
        case errc::closed:
            return "closed";
        case errc::internal:
            return "internal";
    }
    return "unknown";
}

std::string to_string(status what) {
    if (what.native == 0) return std::string(name(what.code));
    return fmt::format("{} (native {})", name(what.code), what.native);
}

}  // namespace amalgam
