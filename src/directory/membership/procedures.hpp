#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "directory/membership/member_table.hpp"
#include "directory/protocol/procedures.hpp"

/// Procedures between directory servers. The signature of a procedure has the names of its types:
/// to rename a type changes the protocol.
namespace amalgam::detail {

/// Servers that are new or changed, and those that are gone.
struct ring_news {
    std::vector<member> came;
    std::vector<departure> gone;

    bool empty() const noexcept { return came.empty() && gone.empty(); }
    template <typename Archive>
    void serialize(Archive& a) {
        a(came, gone);
    }
};

/// The answer to a ping.
struct alive_answer {
    bool known = false;         ///< The answering server knows the asking one as a member.
    std::uint64_t key = 0;      ///< Key of the answering server: another may have taken its
                                ///< address.
    std::uint64_t members = 0;  ///< Digest of all members it knows, including itself.

    template <typename Archive>
    void serialize(Archive& a) {
        a(known, key, members);
    }
};

/// What a probe of a server found.
enum class sign : std::uint8_t {
    unknown,  ///< The server is unknown to the one asked.
    alive,
    silent,   ///< No answer in time.
    refused,  ///< Nobody listens at its address.
    replaced  ///< Another server answers at its address.
};

/// A server's first answer to a query with many, and how to get the next ones.
struct first_answer {
    std::uint64_t server = 0;  ///< Its key.
    std::uint64_t search = 0;  ///< Random: whoever knows it may ask for more.
    found_values found;

    template <typename Archive>
    void serialize(Archive& a) {
        a(server, search, found);
    }
};

/// Those of a part of the ring.
struct first_answers {
    std::vector<first_answer> found;
    std::uint32_t silent = 0;  ///< As in part_answer.

    template <typename Archive>
    void serialize(Archive& a) {
        a(found, silent);
    }
};

namespace in_ring {
/// To a server unknown to others: join the one that has these addresses.
using meet = void(std::vector<std::string>);
inline constexpr std::string_view meet_name = "amalgam.directory.ring.meet";
/// The answer to a broadcast query: its number, and the first match.
using answer = void(std::uint64_t, first_answer);
inline constexpr std::string_view answer_name = "amalgam.directory.ring.answer";
/// All known members.
using members = std::vector<member>();
inline constexpr std::string_view members_name = "amalgam.directory.ring.look";
/// The new member, with the id range it claims; all others are told.
using join = void(member);
inline constexpr std::string_view join_name = "amalgam.directory.ring.join";
/// News for all servers of that part. Answered at once.
using tell = void(ring_part, ring_news);
inline constexpr std::string_view tell_name = "amalgam.directory.ring.tell";
/// The asking server's key, and the version in which the other is suspected, so that it can refute
/// it, or 0.
using ping = alive_answer(std::uint64_t, std::uint32_t);
inline constexpr std::string_view ping_name = "amalgam.directory.ring.alive";
/// Check a server on behalf of one that cannot reach it: its key, and the version as in ping.
using ping_req = sign(std::uint64_t, std::uint32_t);
inline constexpr std::string_view ping_req_name = "amalgam.directory.ring.look_at";
/// All members one side knows, including itself -> the same of the other.
using compare = ring_news(ring_news);
inline constexpr std::string_view compare_name = "amalgam.directory.ring.compare";
/// The query, over that part.
using find = part_answer(ring_part, attribute_view);
inline constexpr std::string_view find_name = "amalgam.directory.ring.find";
/// The same for all answers, one at a time: servers with matches keep the search for a while.
using search = first_answers(ring_part, attribute_view);
inline constexpr std::string_view search_name = "amalgam.directory.ring.search";
/// The number of the search.
using next = next_answer(std::uint64_t);
inline constexpr std::string_view next_name = "amalgam.directory.ring.next";
using stop = void(std::uint64_t);
inline constexpr std::string_view stop_name = "amalgam.directory.ring.stop";
/// A server that watches here for its contexts -> its number as a watcher.
using open_watcher = reply<resource_id>();
inline constexpr std::string_view open_watcher_name = "amalgam.directory.ring.open_guest";
/// The reporting server, and the change as in at_context::change. The id `none` with `appeared`
/// means all that existed when the watch began has been reported.
using change = void(std::uint64_t, std::uint32_t, resource_change::kind, found_values);
inline constexpr std::string_view change_name = "amalgam.directory.ring.change";
}  // namespace in_ring

}  // namespace amalgam::detail
