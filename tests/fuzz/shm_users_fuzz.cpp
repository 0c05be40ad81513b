#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fabric/transports/shm/users.hpp"
#include "fuzz/fuzz.hpp"

// Who may come to a port of shared memory, as its URI's `users=` and an address's `uid=` have it.
namespace amalgam::fuzz {

namespace {

using namespace detail;

constexpr std::uint64_t nobody = 0xffffffff;

/// The slow way, to compare with. `nobody` for what is no number of a user.
std::uint64_t uid_in(std::string_view text) {
    const bool is_number = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return c >= '0' && c <= '9';
    });
    if (!is_number) return nobody;
    std::uint64_t uid = 0;
    for (const char digit : text)
        uid = std::min(nobody, 10 * uid + static_cast<std::uint64_t>(digit - '0'));
    return uid;
}

bool is_list(std::string_view text) {
    if (text == "any") return true;
    const std::size_t comma = text.find(',');
    if (uid_in(text.substr(0, comma)) == nobody) return false;
    return comma == text.npos || is_list(text.substr(comma + 1));
}

}  // namespace

void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto uid = parse_uid(text);
    require(uid ? *uid == uid_in(text) : uid_in(text) == nobody, "a number is whose it says");
    const auto users = parse_shm_users(text);
    require(text.ends_with("any") || users.has_value() == is_list(text), "a list is one, or not");
    if (!users) return;
    require(!users->are_none(), "a list names somebody");
    require(users->all == (text == "any"), "all users come only where the text says so");
    require(!users->have(nobody) || users->all, "nobody is no user");
    if (uid) require(users->have(*uid) && users->uids.size() == 1, "a user is let in alone");
    const auto again = parse_shm_users(users->text());
    require(again && again->all == users->all && again->uids == users->uids,
            "what is told of a list means the same");
}

std::span<const std::string_view> seeds() {
    static constexpr std::array<std::string_view, 6> all{
        "any",          "0",
        "1000,1001",    "4294967294",
        "4294967295,0", "00000000000007,18446744073709551617"};
    return all;
}

}  // namespace amalgam::fuzz
