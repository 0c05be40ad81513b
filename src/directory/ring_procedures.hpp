#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "directory/member_table.hpp"
#include "directory/procedures.hpp"

/// What directory servers ask of each other.
namespace amalgam::detail {

/// Servers that have come or changed, and those that are gone.
struct ring_news {
    std::vector<member> came;
    std::vector<departure> gone;

    bool empty() const noexcept { return came.empty() && gone.empty(); }
    template <typename Archive>
    void serialize(Archive& a) {
        a(came, gone);
    }
};

/// The answer to a look whether one is alive.
struct alive_answer {
    bool known = false;         ///< Who asked is a member for who answers.
    std::uint64_t key = 0;      ///< Of who answers: at its address there may be another by now.
    std::uint64_t members = 0;  ///< A digest of all that it knows, itself included.

    template <typename Archive>
    void serialize(Archive& a) {
        a(known, key, members);
    }
};

/// What somebody saw of a server that it looked at.
enum class sign : std::uint8_t {
    unknown,  ///< It does not know it.
    alive,
    silent,   ///< Nothing came back in time.
    refused,  ///< Nobody listens at its address.
    replaced  ///< Another one does.
};

/// The first answer of a server to a query with many, and where the next ones are to be had.
struct first_answer {
    std::uint64_t server = 0;  ///< Its key.
    std::uint64_t search = 0;  ///< Random: who knows it may ask for more.
    found_values found;

    template <typename Archive>
    void serialize(Archive& a) {
        a(server, search, found);
    }
};

/// Those of a part of the ring.
struct first_answers {
    std::vector<first_answer> found;
    std::uint32_t silent = 0;  ///< As of part_answer.

    template <typename Archive>
    void serialize(Archive& a) {
        a(found, silent);
    }
};

namespace in_ring {
/// To a server that others did not know: it is to join the one that has these addresses.
using meet = void(std::vector<std::string>);
inline constexpr std::string_view meet_name = "amalgam.directory.ring.meet";
/// The answer to a question that was broadcast: its number, and what there is.
using answer = void(std::uint64_t, first_answer);
inline constexpr std::string_view answer_name = "amalgam.directory.ring.answer";
/// All that are known.
using look = std::vector<member>();
inline constexpr std::string_view look_name = "amalgam.directory.ring.look";
/// Who joins, with the range of ids that it claims; all others are told.
using join = void(member);
inline constexpr std::string_view join_name = "amalgam.directory.ring.join";
/// To be told to all of that part. Answered at once.
using tell = void(ring_part, ring_news);
inline constexpr std::string_view tell_name = "amalgam.directory.ring.tell";
/// Who asks; and in which version it is suspected to be gone, so that it says that it is not, or 0.
using alive = alive_answer(std::uint64_t, std::uint32_t);
inline constexpr std::string_view alive_name = "amalgam.directory.ring.alive";
/// To look at a server on behalf of who could not reach it: its key, and as of alive.
using look_at = sign(std::uint64_t, std::uint32_t);
inline constexpr std::string_view look_at_name = "amalgam.directory.ring.look_at";
/// All that one side knows, itself included -> the same of the other.
using compare = ring_news(ring_news);
inline constexpr std::string_view compare_name = "amalgam.directory.ring.compare";
/// What is asked for, in that part.
using find = part_answer(ring_part, attribute_view);
inline constexpr std::string_view find_name = "amalgam.directory.ring.find";
/// The same with all its answers, one at a time: who has some keeps its search for a while.
using search = first_answers(ring_part, attribute_view);
inline constexpr std::string_view search_name = "amalgam.directory.ring.search";
/// The search.
using next = next_answer(std::uint64_t);
inline constexpr std::string_view next_name = "amalgam.directory.ring.next";
using stop = void(std::uint64_t);
inline constexpr std::string_view stop_name = "amalgam.directory.ring.stop";
/// A server that is to watch here for its contexts -> what it is called in that.
using open_guest = reply<resource_id>();
inline constexpr std::string_view open_guest_name = "amalgam.directory.ring.open_guest";
/// Who says so, and what, as at_context::change. The id `none` with `appeared`: all that there was
/// when the watch began has been told.
using change = void(std::uint64_t, std::uint32_t, resource_change::kind, found_values);
inline constexpr std::string_view change_name = "amalgam.directory.ring.change";
}  // namespace in_ring

}  // namespace amalgam::detail
