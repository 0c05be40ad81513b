#pragma once

#include <cstdint>
#include <optional>

#include <amalgam/fabric/message.hpp>

namespace amalgam::detail {

/// For ports whose peers are processes of this host, and may be of several users. A port derives
/// from it. Where it lets in others than its own user, remote keys that are given to them are bound
/// to the user: see bound_key.hpp.
///
/// Threads: the port's, except lets_in_others(), which is any.
class port_users {
public:
    /// Whether others than the port's own user may be at the other end. Constant.
    virtual bool lets_in_others() const noexcept = 0;
    /// Whose process the peer is. Of one that is still connecting: whose it must be for the
    /// connection to come up. Empty for an unknown id, and once the connection has ended.
    virtual std::optional<std::uint32_t> user_of(peer_id peer) const noexcept = 0;

protected:
    ~port_users() = default;
};

}  // namespace amalgam::detail
