#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/type_name.hpp>

#include "directory/registry.hpp"

/// What contexts and directory servers ask of each other, and how it travels.
namespace amalgam {

// Lists travel as they lie in memory. Servers read them where they arrived.
template <>
struct codec<attribute_view> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const attribute_view& x) {
        a.block(reinterpret_cast<const std::uint64_t*>(x.bytes().data()), x.bytes().size() / 8);
    }
    template <typename Archive>
    static void load(Archive& a, attribute_view& x) {
        const auto words = a.template view<std::uint64_t>(a.template block<std::uint64_t>());
        if (words.empty()) return;
        const auto parsed = attribute_view::parse(std::as_bytes(words));
        if (!parsed) return a.fail("it has no proper list of attributes");
        x = *parsed;
    }
};
template <>
struct codec<attribute_list> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 4;

    template <typename Archive>
    static void save(Archive& a, const attribute_list& x) {
        codec<attribute_view>::save(a, x.view());
    }
    template <typename Archive>
    static void load(Archive& a, attribute_list& x) {
        attribute_view borrowed;
        codec<attribute_view>::load(a, borrowed);
        x = attribute_list(borrowed);
    }
};

namespace detail {

template <>
struct namer<attribute_view> {
    static std::string name() { return "attributes"; }
};
template <>
struct namer<attribute_list> {
    static std::string name() { return "attributes"; }
};

/// A result, or the code and the sentence of an error.
template <typename T>
struct reply {
    errc code = errc::ok;
    std::string sentence;
    T value{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(code, sentence, value);
    }
    /// Throws amalgam::error unless it is a result.
    T take() {
        if (code != errc::ok) throw error(code, sentence);
        return std::move(value);
    }
};

/// What `work()` returns or throws.
template <typename Work>
auto reply_of(Work work) -> reply<decltype(work())> {
    try {
        return {errc::ok, {}, work()};
    } catch (const error& why) {
        return {why.code().code, why.what(), {}};
    }
}

template <typename Archive>
void serialize(Archive& a, found_values& x) {
    a(x.id, x.context, x.values);
}

/// What several servers have to say to a query.
struct part_answer {
    found_values found;
    std::uint32_t silent = 0;  ///< Servers, at least, that should have said and did not.

    template <typename Archive>
    void serialize(Archive& a) {
        a(found, silent);
    }
};

/// One answer of a query with many.
struct next_answer {
    bool over = false;
    found_values found;
    std::uint32_t silent = 0;  ///< So far: as of part_answer, or did not say all they have.

    template <typename Archive>
    void serialize(Archive& a) {
        a(over, found, silent);
    }
};

/// In place of the context of what `find` has not found: it has looked at so much that the rest is
/// asked by `find_long`.
inline constexpr resource_id not_looked_at_all{~0u};

/// An attribute of each context: the addresses of its ports, one a line.
inline constexpr std::string_view context_addresses = "context.addresses";

/// The roles of gates.
inline constexpr std::string_view gate_role = "directory";
inline constexpr std::string_view context_gate_role = "context";

/// Procedures of a server; a context may ask for itself only.
namespace at_directory {
/// What the context is -> its id.
using open = reply<resource_id>(attribute_view);
inline constexpr std::string_view open_name = "amalgam.directory.open";
/// A context whose directory was lost, which of its resources, or itself, and what that is: it gets
/// its old id. Itself comes first. `overloaded`: later, perhaps; `denied`: another directory owns
/// the id.
using reopen = reply<bool>(resource_id, resource_id, attribute_view);
inline constexpr std::string_view reopen_name = "amalgam.directory.reopen";
using close = void(resource_id context);
inline constexpr std::string_view close_name = "amalgam.directory.close";
/// The context, and what its new resource is -> the resource's id.
using add = reply<resource_id>(resource_id, attribute_view);
inline constexpr std::string_view add_name = "amalgam.directory.add";
/// The context, and its resource.
using remove = reply<bool>(resource_id, resource_id);
inline constexpr std::string_view remove_name = "amalgam.directory.remove";
/// The context, its resource, or itself, and which attributes get which values.
using set = reply<bool>(resource_id, resource_id, attribute_view);
inline constexpr std::string_view set_name = "amalgam.directory.set";
/// Which resource, or none, and what it is asked for.
using find = found_values(resource_id, attribute_view);
inline constexpr std::string_view find_name = "amalgam.directory.find";
/// The same by what it is, however long that takes.
using find_long = found_values(attribute_view);
inline constexpr std::string_view find_long_name = "amalgam.directory.find_long";
/// As `find`, of what other servers have.
using find_elsewhere = part_answer(resource_id, attribute_view);
inline constexpr std::string_view find_elsewhere_name = "amalgam.directory.find_elsewhere";
/// The context, and what is asked for -> the number of the search.
using search = reply<std::uint32_t>(resource_id, attribute_view);
inline constexpr std::string_view search_name = "amalgam.directory.search";
/// The context, and the search.
using next = reply<next_answer>(resource_id, std::uint32_t);
inline constexpr std::string_view next_name = "amalgam.directory.next";
using stop = void(resource_id, std::uint32_t);
inline constexpr std::string_view stop_name = "amalgam.directory.stop";
/// The context, the number of the watch, and what is watched for.
using watch = reply<bool>(resource_id, std::uint32_t, attribute_view);
inline constexpr std::string_view watch_name = "amalgam.directory.watch";
using unwatch = void(resource_id, std::uint32_t);
inline constexpr std::string_view unwatch_name = "amalgam.directory.unwatch";
/// Another directory of this host wants its place -> whether it ends.
using make_way = bool();
inline constexpr std::string_view make_way_name = "amalgam.directory.make_way";
}  // namespace at_directory

/// Procedures of a context.
namespace at_context {
/// The number of a watch, whether a resource has appeared, has gone or has changed, and which. The
/// id `none`: the watch has ended, as too many changes had not been told.
using change = void(std::uint32_t, resource_change::kind, found_values);
inline constexpr std::string_view change_name = "amalgam.directory.change";
/// The directory has taken the context for gone, as it did not answer, or has ended while its
/// engine goes on: the context may come back, to another in its place.
using dropped = void();
inline constexpr std::string_view dropped_name = "amalgam.directory.dropped";
/// From, to, tag, and the bytes -> whether it is stored; `overloaded`: there is no room.
using message = errc(resource_id, resource_id, std::int32_t, const_bytes);
inline constexpr std::string_view message_name = "amalgam.directory.message";
/// The same of one that nobody waits for, so that more of them are on their way. Once one is
/// refused as `overloaded`, so are those behind it, from that resource to that one, until one says
/// that with it they begin anew: they arrive in order.
using message_in_turn = errc(resource_id, resource_id, std::int32_t, const_bytes, bool);
inline constexpr std::string_view message_in_turn_name = "amalgam.directory.message_in_turn";
/// The same, with the bytes to be pulled, once there is room.
using long_message = errc(resource_id, resource_id, std::int32_t, amalgam::bulk);
inline constexpr std::string_view long_message_name = "amalgam.directory.long_message";
/// Of which resource, and of how many bytes -> there is room now for a message.
using room = errc(resource_id, std::uint64_t);
inline constexpr std::string_view room_name = "amalgam.directory.room";
/// From, to and tag of a message that was posted, and what became of it.
using undelivered = void(resource_id, resource_id, std::int32_t, errc);
inline constexpr std::string_view undelivered_name = "amalgam.directory.undelivered";
}  // namespace at_context

}  // namespace detail
}  // namespace amalgam
