#pragma once

#include <cstdint>
#include <memory>

#include <amalgam/fabric/port.hpp>

namespace amalgam::detail {

/// A port of a plug-in built for that older version of the interface, as one of today's: calls of
/// what that version lacks end with `unsupported`, and never reach it.
///
/// Owner:   owns the port. Regions that it opens belong to that one.
/// Failure: throws std::bad_alloc.
std::unique_ptr<port> make_older_port(std::unique_ptr<port> inner, std::uint32_t version);

}  // namespace amalgam::detail
