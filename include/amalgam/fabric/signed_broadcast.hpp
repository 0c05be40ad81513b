#pragma once

#include <cstdint>
#include <string_view>

#include <amalgam/core/detail/chrono.hpp>
#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/fabric/broadcast_medium.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam {

class credentials;

/// Why a packet was not passed on.
enum class broadcast_refusal : std::uint8_t {
    malformed,    ///< Not of this format.
    untrusted,    ///< No certificate that these credentials trust, or not signed by its key.
    not_allowed,  ///< Of a sender that signed_broadcast_options::takes does not take.
    stale,        ///< Sent too long ago, or by a clock that is that far off.
    repeated,     ///< Received before, or overtaken by 64 later ones of its sender.
    crowded       ///< Of more senders than are remembered.
};

/// The stable lower-case name: "stale".
std::string_view name(broadcast_refusal why) noexcept;

/// Options of sign_broadcasts(). The defaults suit most programs.
struct signed_broadcast_options {
    /// Whose packets to pass on. Empty: everybody's whom the credentials trust. Like on_refused, it
    /// is called on the medium's thread, and must not block or throw.
    std::function<bool(const identity&)> takes{};
    /// Told of each packet that is not passed on; may be empty.
    std::function<void(broadcast_refusal)> on_refused{};
    /// How far the time in a packet may be from this host's.
    std::chrono::seconds window{30};
    /// The time; empty: the system's clock. For tests.
    std::function<std::chrono::system_clock::time_point()> now{};
};

/// A medium whose packets say who sent them, when, and as which of the sender's packets, signed by
/// the private key of its certificate. Only packets that were so sent, within the window, are
/// passed on, each once. They are not encrypted. Format: docs/wire/directory.md.
///
/// Certificates travel in each packet, without those that lead to the authority: the authority must
/// have signed them directly. max_bytes() is smaller by that and by the signature.
///
/// Owner:   shares the medium, which must not be listened to otherwise meanwhile.
/// Threads: any.
/// Failure: throws error{invalid} if the certificate leaves packets of the medium too little room,
///          as one with an RSA key does, and for credentials of pre-shared keys.
/// Cost:    a signature per packet sent, a check of one per packet received: some 100 us each. Up
///          to 10 MB, if 4,096 certificates are heard of.
std::shared_ptr<broadcast_medium> sign_broadcasts(std::shared_ptr<broadcast_medium> on,
                                                  std::shared_ptr<const credentials> by,
                                                  signed_broadcast_options options = {});

/// As broadcast_medium::listen(), on a medium that sign_broadcasts() made: tells who signed each
/// packet, too.
///
/// Failure: throws error{invalid} if packets of that medium are not signed.
void listen_to_signed(broadcast_medium& on,
                      std::function<void(const_bytes, const identity&)> receiver);

}  // namespace amalgam
