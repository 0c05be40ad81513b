#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <amalgam/rpc/allow_list.hpp>

namespace amalgam {
class engine;
}

namespace amalgam::detail {

/// Defines the procedures by which peers ask what this engine waits for: those of `to`; which
/// handlers run a peer's own calls, each peer may ask that may call at all.
void define_waits(engine& here, const std::optional<allow_list>& to);
/// The procedure by which peers ask for the ULTs of this process: those of `to`.
void define_ults(engine& here, const std::optional<allow_list>& to);

/// Names an object of this process to others without telling its address; 0 for null.
std::uint64_t number_of(const void* what) noexcept;
std::string host_name();

}  // namespace amalgam::detail
