#pragma once

#include <cstddef>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/archive.hpp>

namespace amalgam {

namespace detail {

/// As the last argument of a layer's procedure: bytes up to the end of the message, aligned to 8
/// from its start, without a count. XDR does write a count, since zero padding may follow.
/// Borrowed, like spans.
struct rest_of_message {
    static constexpr std::size_t alignment = 8;
    static constexpr std::string_view amalgam_type_name = "rest";

    const_bytes bytes;
};

}  // namespace detail

template <>
struct codec<detail::rest_of_message> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 0;

    template <typename Archive>
    static void save(Archive& a, const detail::rest_of_message& x) {
        if (a.is_xdr()) a.count(x.bytes.size());
        a.align(detail::rest_of_message::alignment);
        a.raw(x.bytes.data(), x.bytes.size());
    }
    template <typename Archive>
    static void load(Archive& a, detail::rest_of_message& x) {
        const std::size_t counted = a.is_xdr() ? a.count(1) : 0;
        a.align(detail::rest_of_message::alignment);
        x.bytes = a.raw(a.is_xdr() ? counted : a.remaining());
    }
};

}  // namespace amalgam
