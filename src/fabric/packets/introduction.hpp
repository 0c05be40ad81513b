#pragma once

#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/core/uri.hpp>

/// Error texts and helpers for URIs of transports on an introduced_carrier, and for the tcp part of
/// such a URI, over which the ends are introduced.
namespace amalgam::detail {

/// The failure `uri "…": what; example: …`.
failure wrong_uri(const uri& where, status why, std::string_view what, std::string_view example);

/// The URI on which the tcp port listens.
uri introduction_uri(const uri& where);

/// Rephrases tcp's failure for the introducer place as one about the URI that contains it.
failure retold(const uri& where, failure why, std::string_view example);

}  // namespace amalgam::detail
