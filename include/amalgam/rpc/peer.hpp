#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include <amalgam/fabric/message.hpp>

namespace amalgam {

class engine;
struct identity;  // See identity.hpp.
namespace detail {
class engine_core;
}

/// A remote engine: the result of engine::lookup(), or the caller of a handler.
///
/// Names one run of one process. Once that has gone down, calls end with `disconnected`, even after
/// a restart at the same address; look the address up again. A peer looked up by several addresses
/// switches to another path when one is lost.
/// Owner:   a plain value; the engine must outlive its use.
/// Threads: like a plain value.
class peer {
public:
    peer() noexcept = default;  ///< No peer: calls end with `invalid`.
    peer(detail::engine_core& owner, std::uint16_t port, std::uint32_t slot, peer_id id) noexcept
        : owner_(&owner), id_(id), slot_(slot), port_(port) {}

    explicit operator bool() const noexcept { return owner_ != nullptr; }
    /// The address it was looked up by, or connected from. Not for hot paths. Kept after loss for
    /// the latest 4,096 lost peers that were looked up and the latest 256 that connected; empty for
    /// others.
    std::string address() const;
    /// Who it is, as far as the transport of the path in use knows: see port::who(). Of this engine
    /// itself: this process. identity_kind::none before the connection is up, and once it is lost.
    /// Not for hot paths: asks the engine's stream.
    identity who() const;
    /// One sentence: the path in use, why, and what became of the other addresses. For people; not
    /// for hot paths.
    std::string explain() const;
    /// This engine itself.
    bool is_self() const noexcept { return port_ == self_port; }
    /// Index of the engine's port that leads to it. For a peer with several addresses, the port
    /// that was best at lookup.
    std::size_t port() const noexcept { return port_; }

    friend bool operator==(const peer& a, const peer& b) noexcept {
        return a.owner_ == b.owner_ && a.id_ == b.id_ && a.port_ == b.port_;
    }

    /// The port of a peer that is the engine itself.
    static constexpr std::uint16_t self_port = 0xffff;

    // For the engine.
    detail::engine_core* owner() const noexcept { return owner_; }
    peer_id id() const noexcept { return id_; }
    std::uint32_t slot() const noexcept { return slot_; }

private:
    detail::engine_core* owner_ = nullptr;
    peer_id id_;
    std::uint32_t slot_ = 0;  // Index in the engine's table; checked against id_.
    // Wide so that copies use whole words and can be read back without a delay.
    std::uint32_t port_ = 0;
};

}  // namespace amalgam

template <>
struct std::hash<amalgam::peer> {
    std::size_t operator()(const amalgam::peer& who) const noexcept {
        return std::hash<amalgam::peer_id>{}(who.id()) + who.port();
    }
};
