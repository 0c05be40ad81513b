#include "inject/target/version_floors.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/file_stamp.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/detail/text.hpp>
#include <amalgam/core/status.hpp>

#include "inject/image/text.hpp"
#include "inject/limits.hpp"

namespace amalgam::detail {

version_floors::version_floors(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    if (const auto fault = fault_of_policy_file(path_))
        throw error(fault->what.code, "the file of image versions " + fault->sentence);
    if (!file_stamp::of(path_).there) return;
    const auto read = read_file(path_, limits::max_version_file_bytes);
    if (!read)
        throw error(read.code() == errc::invalid ? errc::invalid : errc::denied,
                    fmt::format("the file of image versions {} {}; the highest line of each name "
                                "is enough",
                                path_, read.sentence()));
    std::string_view text(reinterpret_cast<const char*>(read->data()), read->size());
    // A line that a crash has cut off says nothing: its version was never accepted.
    text = text.substr(0, text.rfind('\n') + 1);
    for (std::string_view line; take_line(text, line);) {
        if (line.empty()) continue;
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string_view number = trimmed(line.substr(space));
        std::uint64_t version = 0;
        const auto [end, fault] =
            std::from_chars(number.data(), number.data() + number.size(), version);
        if (fault != std::errc{} || end != number.data() + number.size())
            throw error(errc::invalid,
                        fmt::format("{}: \"{}\" is not the version of an image, expected its name "
                                    "and a number; example: search 3",
                                    path_, printable_name(line.substr(0, 80))));
        auto& highest = all_[std::string(line.substr(0, space))];
        highest = std::max(highest, version);
    }
}

std::uint64_t version_floors::of(std::string_view name) const {
    const std::lock_guard one(lock_);
    const auto at = all_.find(std::string(name));
    return at == all_.end() ? 0 : at->second;
}

bool version_floors::raise(std::string_view name, std::uint64_t version) {
    const std::lock_guard one(lock_);
    const auto at = all_.find(std::string(name));
    if (version <= (at == all_.end() ? 0 : at->second)) return false;
    if (at == all_.end() && all_.size() >= limits::max_version_names)
        throw error(errc::denied,
                    fmt::format("the image {} may not run here: this target remembers versions of "
                                "{} other names, and no more",
                                name, all_.size()));
    if (!path_.empty() &&
        !append_lines(path_, fmt::format("{} {}\n", name, version), unended_line::is_dropped))
        throw error(errc::denied,
                    fmt::format("the image {} may not run here: its version cannot be written to "
                                "{}: {}",
                                name, path_, std::strerror(errno)));
    all_[std::string(name)] = version;
    return true;
}

}  // namespace amalgam::detail
