#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <strings.h>

#include <amalgam/core/bytes.hpp>
#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/packets.hpp>

namespace amalgam::detail {

/// What the two ends of a connection know once they were introduced, and nobody else does.
struct link_secrets {
    using key = std::array<std::byte, 32>;

    link_secrets() = default;
    link_secrets(const link_secrets&) = delete;
    ~link_secrets() {
        ::explicit_bzero(sending.data(), sending.size());
        ::explicit_bzero(receiving.data(), receiving.size());
    }

    key sending{};  ///< Of the packets that leave here; the other end's `receiving`.
    key receiving{};
    std::uint8_t their_ciphers = 0;  ///< As the other end told; see sealing/packet_keys.hpp.
    identity who;                    ///< The other end, as it proved.
};

/// The label under which TLS exports keys of packets. Part of the wire, see docs/wire/packets.md.
inline constexpr std::string_view link_key_label = "EXPORTER-amalgam-packets";

/// Derives a key for each direction by `export_key(context, into)`, which returns whether it could.
/// The ids of the two ends, in the order to and from, tell the directions apart, and this
/// connection from another one of the ends.
/// Failure: null if there is no key, or the ids are the same; throws std::bad_alloc.
template <typename Export>
std::unique_ptr<link_secrets> share_secrets(std::uint64_t own_id, std::uint64_t their_id,
                                            std::uint8_t their_ciphers, Export export_key) {
    // A peer that repeats our id would have both directions under one key.
    if (own_id == their_id) return nullptr;
    auto made = std::make_unique<link_secrets>();
    const auto derive = [&](std::uint64_t to, std::uint64_t from, link_secrets::key& into) {
        std::array<std::byte, 16> ids;
        store_le(ids.data(), to);
        store_le(ids.data() + 8, from);
        return export_key(const_bytes(ids), into);
    };
    if (!derive(their_id, own_id, made->sending) || !derive(own_id, their_id, made->receiving))
        return nullptr;
    made->their_ciphers = their_ciphers;
    return made;
}

/// How ends prove to each other who they are while they are introduced. Without an `export_key`
/// they do not.
struct introduction_trust {
    /// Key material that both ends of the connection to `peer` of the introducing port have and
    /// nobody else: another for each label and context. False: there is no such connection.
    using key_export = bool (*)(port& introducer, peer_id peer, std::string_view label,
                                const_bytes context, mutable_bytes into);

    key_export export_key = nullptr;
    std::uint8_t ciphers = 0;  ///< To tell the other end.
};

/// A packet carrier that introduces its ends before packets flow.
class introducing_carrier : public packet_carrier {
public:
    /// See port::self().
    virtual identity self() const { return {}; }
    /// Hands over the secrets of a connection, once. It has them from the first room() or
    /// received() on. Null: it has none, as ends prove nothing to each other.
    virtual std::unique_ptr<link_secrets> take_secrets(packet_link&) noexcept = 0;
};

/// Knows who is at the two ends of a connection.
class link_identities {
public:
    virtual identity self() const = 0;
    virtual identity who(const packet_link&) const = 0;

protected:
    ~link_identities() = default;
};

}  // namespace amalgam::detail
