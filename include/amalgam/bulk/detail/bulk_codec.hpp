#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {

namespace detail {

/// One port of the exposing engine: its remote key and its address.
struct bulk_way {
    remote_key key;
    std::string address;  ///< Empty: the port does not listen.
};

enum class bulk_kind : std::uint8_t {
    nothing = 0x10,  ///< Version 1 in the upper four bits.
    inside = 0x11,   ///< The bytes are included.
    elsewhere = 0x12,
    served = 0x13  ///< Elsewhere, and moved by calls.
};

constexpr bool has_paths(bulk_kind kind) noexcept {
    return kind == bulk_kind::elsewhere || kind == bulk_kind::served;
}

/// Wire form of an outgoing descriptor. Borrows from the bulk. See docs/wire/bulk.md.
struct bulk_image {
    static constexpr std::uint16_t no_way = 0xffff;
    static constexpr std::size_t max_ways = 64;
    static constexpr std::size_t max_address_bytes = 1024;
    /// Read-only memory up to this size is sent inside the descriptor.
    static constexpr std::size_t inside_bytes = 1024;

    bulk_kind kind = bulk_kind::nothing;
    access rights = access::read;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  ///< Within the region.
    remote_key home;  ///< Key at the exposing engine; its length and rights are authoritative.
    std::uint64_t loan = 0;  ///< Loan by which the receiver keeps the memory alive; 0: none.
    std::uint16_t direct = no_way;
    std::span<const bulk_way> ways;
    std::vector<bulk_way> bound_ways;  ///< What they are in, if their keys are for one peer.
    std::vector<std::byte> content;
};

/// A received descriptor.
struct received_bulk : bulk_image {
    std::vector<bulk_way> own_ways;
};

}  // namespace detail

template <>
struct codec<bulk> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 8;

    template <typename Archive>
    static void save(Archive& a, const bulk& x) {
        const detail::bulk_image image = x.to_send(a.between());
        a.scalar(static_cast<std::uint8_t>(image.kind));
        a.scalar(static_cast<std::uint8_t>(image.rights));
        a.scalar(static_cast<std::uint16_t>(image.ways.size()));
        a.scalar(image.direct);
        a.scalar(std::uint16_t{0});
        if (image.kind == detail::bulk_kind::inside) a(image.content);
        if (!detail::has_paths(image.kind)) return;
        a(image.bytes, image.offset, image.home.bytes, image.home.secret, image.home.incarnation,
          image.loan);
        for (const detail::bulk_way& each : image.ways)
            a(each.key.secret, each.key.region, each.key.incarnation, each.address);
    }

    template <typename Archive>
    static void load(Archive& a, bulk& x) {
        detail::received_bulk image;
        image.kind = static_cast<detail::bulk_kind>(a.template scalar<std::uint8_t>());
        image.rights = static_cast<access>(a.template scalar<std::uint8_t>());
        const auto ways = a.template scalar<std::uint16_t>();
        image.direct = a.template scalar<std::uint16_t>();
        if (a.template scalar<std::uint16_t>() != 0) a.fail("a reserved field is nonzero");
        if (image.kind == detail::bulk_kind::inside) a(image.content);
        if (detail::has_paths(image.kind)) {
            a(image.bytes, image.offset, image.home.bytes, image.home.secret,
              image.home.incarnation, image.loan);
            if (ways > detail::bulk_image::max_ways)
                a.fail("a bulk descriptor lists too many paths");
            for (std::size_t i = 0; i < ways && a.ok(); ++i) {
                detail::bulk_way& each = image.own_ways.emplace_back();
                a(each.key.secret, each.key.region, each.key.incarnation, each.address);
            }
        }
        if (!a.ok()) return;
        if (const char* wrong = bulk::receive(image, a.between(), x)) a.fail(wrong);
    }
};

}  // namespace amalgam
