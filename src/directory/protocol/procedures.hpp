#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/rpc/codec.hpp>
#include <amalgam/rpc/extension/mail.hpp>
#include <amalgam/rpc/type_name.hpp>

#include "directory/resources/registry.hpp"

/// Procedures between contexts and directory servers, and their encoding.
namespace amalgam {

// Lists travel in their memory format. Servers read them in place.
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
        if (!parsed) return a.fail("its list of attributes is malformed");
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

/// A result, or the code and message of an error.
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

/// The result of `work()`, or the error it throws.
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

/// Combined answer of several servers to a query.
struct part_answer {
    found_values found;
    std::uint32_t silent = 0;  ///< At least this many servers should have answered and did not.

    template <typename Archive>
    void serialize(Archive& a) {
        a(found, silent);
    }
};

/// One answer to a query with many.
struct next_answer {
    bool over = false;
    found_values found;
    std::uint32_t silent = 0;  ///< So far, as in part_answer, or gave only part of their answers.

    template <typename Archive>
    void serialize(Archive& a) {
        a(over, found, silent);
    }
};

/// Returned instead of a context by `find` when it stopped at its limit of resources examined: ask
/// `find_long`.
inline constexpr resource_id not_looked_at_all{~0u};

/// Attribute of each context: the addresses of its ports, one per line.
inline constexpr std::string_view context_addresses = "context.addresses";

/// Procedures of a server. A context may act only for itself.
namespace at_directory {
/// The context's attributes -> its id.
using open = reply<resource_id>(attribute_view);
inline constexpr std::string_view open_name = "amalgam.directory.open";
/// For a context whose directory was lost: the context, one of its resources or itself, and its
/// attributes; registers it again under its old id. The context itself comes first. `overloaded`:
/// may work later; `denied`: another directory owns the id.
using reopen = reply<bool>(resource_id, resource_id, attribute_view);
inline constexpr std::string_view reopen_name = "amalgam.directory.reopen";
using close = void(resource_id context);
inline constexpr std::string_view close_name = "amalgam.directory.close";
/// The context, and the attributes of its new resource -> the resource's id.
using add = reply<resource_id>(resource_id, attribute_view);
inline constexpr std::string_view add_name = "amalgam.directory.add";
/// The context, and its resource.
using remove = reply<bool>(resource_id, resource_id);
inline constexpr std::string_view remove_name = "amalgam.directory.remove";
/// The context, one of its resources or itself, and the attributes to set.
using set = reply<bool>(resource_id, resource_id, attribute_view);
inline constexpr std::string_view set_name = "amalgam.directory.set";
/// The resource id or none, and the query.
using find = found_values(resource_id, attribute_view);
inline constexpr std::string_view find_name = "amalgam.directory.find";
/// The same by attributes only, without a limit on the work.
using find_long = found_values(attribute_view);
inline constexpr std::string_view find_long_name = "amalgam.directory.find_long";
/// Like `find`, over the other servers.
using find_elsewhere = part_answer(resource_id, attribute_view);
inline constexpr std::string_view find_elsewhere_name = "amalgam.directory.find_elsewhere";
/// The context, and the query -> the number of the search.
using search = reply<std::uint32_t>(resource_id, attribute_view);
inline constexpr std::string_view search_name = "amalgam.directory.search";
/// The context, and the search.
using next = reply<next_answer>(resource_id, std::uint32_t);
inline constexpr std::string_view next_name = "amalgam.directory.next";
using stop = void(resource_id, std::uint32_t);
inline constexpr std::string_view stop_name = "amalgam.directory.stop";
/// The context, the number of the watch, and the query.
using watch = reply<bool>(resource_id, std::uint32_t, attribute_view);
inline constexpr std::string_view watch_name = "amalgam.directory.watch";
using unwatch = void(resource_id, std::uint32_t);
inline constexpr std::string_view unwatch_name = "amalgam.directory.unwatch";
/// Another directory on this host wants to take over -> whether this one ends.
using make_way = bool();
inline constexpr std::string_view make_way_name = "amalgam.directory.make_way";
}  // namespace at_directory

/// Procedures of a context.
namespace at_context {
/// The number of a watch; whether a resource appeared, went or changed; which one. The id `none`
/// means the watch has ended because too many changes were undelivered.
using change = void(std::uint32_t, resource_change::kind, found_values);
inline constexpr std::string_view change_name = "amalgam.directory.change";
/// The directory dropped the context because it did not respond, or the directory has ended while
/// its engine goes on. The context may return, to a successor.
using dropped = void();
inline constexpr std::string_view dropped_name = "amalgam.directory.dropped";
/// From, to, tag, bytes -> whether it was stored; `overloaded`: no room.
using message = errc(resource_id, resource_id, std::int32_t, const_bytes);
inline constexpr std::string_view message_name = "amalgam.directory.message";
/// The same for messages nobody waits for, several of which may be in flight. Once one is refused
/// as `overloaded`, so are the later ones from that sender to that receiver, until one says that it
/// begins anew. This keeps them in order.
using message_in_turn = errc(resource_id, resource_id, std::int32_t, const_bytes, bool);
inline constexpr std::string_view message_in_turn_name = "amalgam.directory.message_in_turn";
/// The same, but the bytes are pulled once there is room.
using long_message = errc(resource_id, resource_id, std::int32_t, amalgam::bulk);
inline constexpr std::string_view long_message_name = "amalgam.directory.long_message";
/// The resource, and a size -> there is room now for such a message.
using room = errc(resource_id, std::uint64_t);
inline constexpr std::string_view room_name = "amalgam.directory.room";
/// From, to and tag of a posted message, and why it was not delivered.
using undelivered = void(resource_id, resource_id, std::int32_t, errc);
inline constexpr std::string_view undelivered_name = "amalgam.directory.undelivered";
/// A fingerprint of 32 bytes -> whether a port of the context proves itself by that key now. Asked
/// over a connection on which it proved itself by another, which it may have replaced since.
using has_key = bool(const_bytes);
inline constexpr std::string_view has_key_name = "amalgam.directory.has_key";
/// In front of the content of a posted message, which is mail (docs/wire/rpc.md).
struct mail_header {
    static constexpr std::size_t wire_bytes = mail_head_bytes;

    resource_id from = resource_id::none;
    resource_id to = resource_id::none;
    std::int32_t tag = 0;

    mail_head encode() const noexcept {
        mail_head bytes;
        store_le(bytes.data(), static_cast<std::uint64_t>(from));
        store_le(bytes.data() + 8, static_cast<std::uint64_t>(to));
        store_le(bytes.data() + 16, std::uint64_t{static_cast<std::uint32_t>(tag)});
        return bytes;
    }
    /// Precondition: there are so many bytes.
    static mail_header decode(const_bytes bytes) noexcept {
        return {load_le<resource_id>(bytes.data()), load_le<resource_id>(bytes.data() + 8),
                load_le<std::int32_t>(bytes.data() + 16)};
    }
};
}  // namespace at_context

}  // namespace detail
}  // namespace amalgam
