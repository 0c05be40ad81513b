#include "fabric/transports/shm/users.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace amalgam::detail {

bool shm_users::have(std::uint32_t uid) const noexcept {
    return all || std::find(uids.begin(), uids.end(), uid) != uids.end();
}

std::string shm_users::text() const {
    return all ? std::string("any") : fmt::format("{}", fmt::join(uids, ","));
}

std::optional<std::uint32_t> parse_uid(std::string_view text) noexcept {
    std::uint32_t uid = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, uid);
    // The last number is no user's: the kernel means "nobody" by it.
    if (read.ec != std::errc() || read.ptr != end || uid == ~std::uint32_t{0}) return std::nullopt;
    return uid;
}

std::optional<shm_users> parse_shm_users(std::string_view list) {
    shm_users made;
    made.all = list == "any";
    while (!made.all) {
        const std::size_t comma = std::min(list.find(','), list.size());
        const auto uid = parse_uid(list.substr(0, comma));
        if (!uid) return std::nullopt;
        made.uids.push_back(*uid);
        if (comma == list.size()) break;
        list.remove_prefix(comma + 1);
    }
    return made;
}

}  // namespace amalgam::detail
