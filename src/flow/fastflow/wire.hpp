#pragma once

#include <cstdint>
#include <string>

#include <amalgam/core/bytes.hpp>

/// Calls between the nodes of fastflow.hpp.
///
///     sender -> receiver
///         join    type of the items        I will send; refused if the types differ or enough
///                                          senders have joined; answered at once
///         batch   number, items, bytes     numbers count from 0; answered when all of its items
///                                          have left the receiver
///         end     batches, items           no more will come: once per sender and receiver
///     both ways
///         failed  why                      this end stops early
namespace amalgam::detail::fastflow_wire {

inline constexpr const char* join = "amalgam.fastflow.join";
inline constexpr const char* batch = "amalgam.fastflow.batch";
inline constexpr const char* end = "amalgam.fastflow.end";
inline constexpr const char* failed = "amalgam.fastflow.failed";

using join_signature = void(std::string);
using batch_signature = void(std::uint64_t, std::uint32_t, const_bytes);
using end_signature = void(std::uint64_t, std::uint64_t);
using failed_signature = void(std::string);

}  // namespace amalgam::detail::fastflow_wire
