#pragma once

#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>

/// Error texts and helpers for URIs of transports on an introduced_carrier, and for the tcp part of
/// such a URI, over which the ends are introduced.
namespace amalgam::detail {

/// The failure `uri "…": what; example: …`.
failure wrong_uri(const uri& where, status why, std::string_view what, std::string_view example);

/// The option by which users say that others neither read nor change what passes on the wire.
inline constexpr std::string_view trusted_wire_option = "trusted_wire";
inline constexpr std::string_view credentials_option = "credentials";

/// What a URI of a port says of protection.
struct wire_trust {
    bool tls = false;           ///< Its protocol ends in "+tls".
    bool trusted_wire = false;  ///< `?trusted_wire=yes`.
};

/// Takes "+tls" and the option `trusted_wire` out of `where`; the option `credentials` stays.
/// Failure: `invalid` with what was wrong, without a full sentence.
result<wire_trust> take_trust(uri& where);

/// Of a port's URI, or of an address to look up, the URI of the tcp port below: with "+tls", so is
/// that one.
uri introduction_uri(const uri& where);

/// Rephrases tcp's failure for the introducer place as one about the URI that contains it.
failure retold(const uri& where, failure why, std::string_view example);

}  // namespace amalgam::detail
