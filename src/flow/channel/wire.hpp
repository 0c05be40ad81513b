#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Calls between the processes of a run. An edge is named by its number in the graph, a process by
/// its group's number in the graph and its number in the group (`replica`).
///
///     sender -> receiver
///         join    graph fingerprint, group, replica      who I am; fails if the graphs differ
///         batch   edge, replica, number, items, bytes    one-way; numbers count from 0; without
///                                                        items, a mark: the bytes are the number
///                                                        of the checkpoint, little-endian
///         end     edge, replica, batches, items          answered when all were consumed: empty,
///                                                        or why they will not be
///     receiver -> sender
///         credit  edge, replica, bytes, items            one-way; total consumed so far; bytes
///                                                        include batch_overhead per batch
///     one process of a loop -> the others, joined or not
///         loop_counts  loop                              added, taken away; empty before the
///                                                        nodes there have started
///         loop_over    loop                              it has ended
///     both ways
///         stay    -                                      answered when the run is over there:
///                                                        empty, or why it failed; until then,
///                                                        losing the call is losing the process
///         amalgam.ping, which every engine answers: a process that does not is lost, too
namespace amalgam::detail::wire {

inline constexpr const char* join = "amalgam.flow.join";
inline constexpr const char* batch = "amalgam.flow.batch";
inline constexpr const char* end = "amalgam.flow.end";
inline constexpr const char* credit = "amalgam.flow.credit";
inline constexpr const char* loop_counts = "amalgam.flow.loop_counts";
inline constexpr const char* loop_over = "amalgam.flow.loop_over";
inline constexpr const char* stay = "amalgam.flow.stay";

/// Of a mark.
inline constexpr std::size_t mark_bytes = 8;

using join_signature = void(std::string, std::uint32_t, std::uint32_t);
using batch_signature = void(std::uint32_t, std::uint32_t, std::uint64_t, std::uint32_t,
                             std::span<const std::byte>);
using end_signature = std::string(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t);
using credit_signature = void(std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t);
using loop_counts_signature = std::vector<std::uint64_t>(std::uint32_t);
using loop_over_signature = void(std::uint32_t);
using stay_signature = std::string();

}  // namespace amalgam::detail::wire
