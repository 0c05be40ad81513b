#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amalgam::detail {

/// Other users whose processes a port may be connected with: of `?users=1000,1001`, or `users=any`.
/// By default none.
///
/// Threads: a plain value.
struct shm_users {
    bool all = false;
    std::vector<std::uint32_t> uids;

    bool are_none() const noexcept { return !all && uids.empty(); }
    bool have(std::uint32_t uid) const noexcept;
    /// "1000,1001", "any".
    std::string text() const;
};

/// Empty: not such a list.
std::optional<shm_users> parse_shm_users(std::string_view list);
/// Empty: not a user id in decimal.
std::optional<std::uint32_t> parse_uid(std::string_view text) noexcept;

}  // namespace amalgam::detail
