#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <amalgam/fabric/identity.hpp>
#include <amalgam/fabric/message.hpp>
#include <amalgam/fabric/region.hpp>

/// Remote keys that work for one peer only, where peers prove who they are (tcp+tls), or for one
/// user only, where the kernel tells users apart (shm). They are region::key() with another secret,
/// which the target finds again from that and from who shows it, so that nothing is stored for each
/// peer. Who has such a key cannot make one for somebody else: the secrets depend on a random key
/// of this process.
namespace amalgam::detail {

/// For whoever proves this certificate's key, over whatever connection to the port.
remote_key bound_to(const remote_key& key, const key_fingerprint& holder) noexcept;
/// For this peer of the port while its connection is up; it may still be connecting.
remote_key bound_to(const remote_key& key, peer_id holder) noexcept;
/// For processes of that user of this host, over whatever connection to the port.
remote_key bound_to_user(const remote_key& key, std::uint32_t uid) noexcept;
/// For nobody.
remote_key bound_to_nobody(const remote_key& key) noexcept;

/// SipHash-2-4.
std::uint64_t sip_hash(std::uint64_t key_low, std::uint64_t key_high,
                       std::span<const std::byte> text) noexcept;

}  // namespace amalgam::detail
