#include <ctime>
#include <string_view>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>

#include "inject/image/contents.hpp"
#include "inject/limits.hpp"

namespace amalgam::detail {

std::string text_of_time(std::chrono::sys_seconds time) {
    const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

std::optional<std::string> fault_of_manifest(const image_manifest& what) {
    const auto out_of_range = [](std::chrono::sys_seconds time) {
        // Within what the nanoseconds of std::chrono::system_clock reach, 2262.
        return time.time_since_epoch().count() < 0 || time > limits::last_manifest_time;
    };
    if (out_of_range(what.not_before) || (what.not_after && out_of_range(*what.not_after)))
        return "its manifest has a time outside of the years 1970 to 2199";
    if (what.not_after && *what.not_after < what.not_before)
        return "its manifest ends before it begins";
    for (const auto* list : {&what.names, &what.groups}) {
        if (list->size() > limits::max_manifest_names)
            return "its manifest has more than 64 names or groups";
        for (const std::string& each : *list)
            if (each.empty() || each.size() > limits::max_manifest_name_bytes || has_controls(each))
                return "its manifest has a name that is empty, longer than 255 bytes, or has "
                       "control characters";
    }
    return std::nullopt;
}

std::string audience_of(const image_manifest& what) {
    std::string text = fmt::format("{}", fmt::join(what.names, ", "));
    for (const std::string& each : what.groups)
        text += fmt::format("{}group {}", text.empty() ? "" : ", ", each);
    return text;
}

}  // namespace amalgam::detail

namespace amalgam {

std::string to_text(const image_manifest& what) {
    std::string text = fmt::format("version {}", what.version);
    if (what.not_before != std::chrono::sys_seconds{})
        text += fmt::format(", from {}", detail::text_of_time(what.not_before));
    text += what.not_after ? fmt::format(", until {}", detail::text_of_time(*what.not_after))
                           : ", without an end";
    const std::string audience = detail::audience_of(what);
    return text + (audience.empty() ? ", for all targets" : fmt::format(", for {}", audience));
}

}  // namespace amalgam
