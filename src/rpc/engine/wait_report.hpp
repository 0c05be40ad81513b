#pragma once

#include <optional>

#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {
class engine;
}

namespace amalgam::detail {

/// Defines the procedures by which peers ask what this engine waits for: those of `to`; which
/// handlers run a peer's own calls, each peer may ask that may call at all.
void define_waits(engine& here, const std::optional<allow_list>& to);

}  // namespace amalgam::detail
