#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include <amalgam/fabric/message.hpp>

namespace amalgam {

class engine;
namespace detail {
class engine_core;
}

/// Somebody whom an engine can call: the answer of engine::lookup(), or who called a handler.
///
/// Stays the name of that one run of that one process: when it went down, calls end with
/// `disconnected`, also after a restart at the same address. Look the address up again then.
/// One that was looked up by several addresses goes on by another when a way to it is lost.
/// Owner:   a plain value; the engine must outlive its use.
/// Threads: like a plain value.
class peer {
public:
    peer() noexcept = default;  ///< Nobody: calls end with `invalid`.
    peer(detail::engine_core& owner, std::uint16_t port, std::uint32_t slot, peer_id id) noexcept
        : owner_(&owner), id_(id), slot_(slot), port_(port) {}

    explicit operator bool() const noexcept { return owner_ != nullptr; }
    /// Where it was looked up or came from. Not for hot paths. Kept past its loss: of the latest
    /// 4,096 lost peers that were looked up, and the latest 256 that came; of others empty.
    std::string address() const;
    /// One sentence: by which way it is reached now and why, and what became of its other
    /// addresses. For people; not for hot paths.
    std::string explain() const;
    /// The engine itself.
    bool is_self() const noexcept { return port_ == self_port; }
    /// Which of the engine's ports leads there, in the order they were given; of a peer with
    /// several addresses, to the one that was best when it was looked up.
    std::size_t port() const noexcept { return port_; }

    friend bool operator==(const peer& a, const peer& b) noexcept {
        return a.owner_ == b.owner_ && a.id_ == b.id_ && a.port_ == b.port_;
    }

    static constexpr std::uint16_t self_port = 0xffff;

    // For the engine.
    detail::engine_core* owner() const noexcept { return owner_; }
    peer_id id() const noexcept { return id_; }
    std::uint32_t slot() const noexcept { return slot_; }

private:
    detail::engine_core* owner_ = nullptr;
    peer_id id_;
    std::uint32_t slot_ = 0;  // Of the engine's table; checked against id_.
    std::uint32_t port_ = 0;  // So wide that a copy is made of whole words, and read back at once.
};

}  // namespace amalgam

template <>
struct std::hash<amalgam::peer> {
    std::size_t operator()(const amalgam::peer& who) const noexcept {
        return std::hash<amalgam::peer_id>{}(who.id()) + who.port();
    }
};
