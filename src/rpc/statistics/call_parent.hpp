#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/call_context.hpp>

namespace amalgam::detail {

/// The procedure whose handler makes a call or asks for a transfer. Borrows its name.
struct call_parent {
    std::string_view procedure;  ///< Empty: none does.
    std::uint16_t provider = 0;

    /// Of what the caller does now.
    static call_parent here() noexcept;
    friend bool operator==(const call_parent&, const call_parent&) = default;
};

/// Tells the server, unless the extras have no room for it: then the call matters more. Failure:
/// for want of memory, as add_extra().
void add_parent(std::vector<std::byte>& extras, const call_context& serving);
/// As a peer, or this engine, has told; empty unless it is well-formed.
call_parent parent_in(const_bytes extras) noexcept;

}  // namespace amalgam::detail
