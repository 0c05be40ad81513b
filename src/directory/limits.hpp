#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Sizes and times of directory that users do not set; those that they set are directory_options
/// (<amalgam/directory/directory_server.hpp>) and context_options
/// (<amalgam/directory/context.hpp>). Those marked "wire" are refused when exceeded.
namespace amalgam::detail::limits {

// ---- ids
/// A server claims ids by the range. Wire.
inline constexpr std::uint32_t ids_per_range = 1u << 16;
inline constexpr std::uint32_t id_ranges = 1u << 15;  ///< Keeps ids positive as an int. Wire.
/// A server claims another range when it has fewer unused ids.
inline constexpr std::size_t few_ids = ids_per_range / 4;
/// Ranges claimed by two servers at once that one of them gives up; more partitions are a lie.
inline constexpr std::size_t max_shared_ranges = 16;
/// Ranges claimed again because a returning context says that its id is from there; it may lie.
inline constexpr std::size_t max_reclaimed_ranges = 64;
/// Of these, for contexts that may only search, each of which has one id.
inline constexpr std::size_t max_reclaimed_for_readers = 8;
/// Attempts to settle who keeps one.
inline constexpr int claim_rounds = 20;

// ---- servers, as they describe themselves. Wire.
inline constexpr std::size_t max_ranges = 1024;  ///< Per server: 67 million ids.
inline constexpr std::size_t max_addresses = 32;
inline constexpr std::size_t max_address_bytes = 255;
/// Of all servers: four times the ranges.
inline constexpr std::size_t max_claims = 131072;

// ---- broadcasts
inline constexpr std::size_t max_packet_addresses = 64;  ///< Wire.
/// Servers that announce themselves in one period; more share several periods.
inline constexpr std::size_t max_announcers = 64;
/// Unknown servers remembered, met at once, and how often one is left to others to meet.
inline constexpr std::size_t max_unknown_servers = 1024;
inline constexpr unsigned max_meetings = 64;
inline constexpr unsigned rounds_left_to_others = 3;
/// More servers are not searched by broadcast, since every one answers.
inline constexpr std::size_t max_servers_searched = 64;
/// Broadcast searches stop for so many periods once so many in a row have missed a server.
inline constexpr unsigned max_broadcast_misses = 3;
inline constexpr int broadcast_rest_periods = 30;
inline constexpr int max_broadcasts_heard = 256;  ///< At once.

// ---- failure detection
/// Two, so that two neighbors that fail together are detected.
inline constexpr std::size_t successors_probed = 2;
/// Confirmations by others that make a suspicion last its shortest time; also the servers asked to
/// probe in our place.
inline constexpr std::size_t suspicion_confirmations = 3;
/// Rounds of probes between two attempts to meet lost servers again.
inline constexpr unsigned rounds_between_rejoins = 10;
/// News within this time is sent together.
inline constexpr std::chrono::milliseconds gather_time{5};
/// Requests of other servers under way at once; more are dropped and counted.
inline constexpr int max_works_for_others = 1024;

// ---- searches and watches
/// Resources that a search looks at before other calls get a turn.
inline constexpr std::size_t search_turn = 4096;
/// Undelivered changes of one watch, and bytes of their values; past either the watch ends.
inline constexpr std::size_t max_undelivered_changes = std::size_t{1} << 18;
inline constexpr std::size_t max_undelivered_change_bytes = std::size_t{1} << 28;

// ---- contexts
/// Of one process, which has one at a time: at a directory. More keep out those of others.
inline constexpr std::size_t max_contexts_of_one = 64;
/// Senders that are looked up at once, to see whether they are who they say; of these, those that
/// one process sends as, so that it does not keep out those of others.
inline constexpr std::size_t max_senders_looked_up = 64;
inline constexpr std::size_t max_senders_of_one = 16;
/// Messages in flight per pair of resources.
inline constexpr std::size_t max_in_flight = 64;
/// For one answer of the directory, to a context.
inline constexpr std::chrono::seconds answer_limit{5};
/// Until the directory answers at all: one that this context has started, and one that is there.
inline constexpr std::chrono::seconds start_limit{10};
inline constexpr std::chrono::seconds reach_limit{1};
/// After the directory was lost: between attempts to reach it, and to start it again.
inline constexpr std::chrono::milliseconds pause_between_attempts{100};
inline constexpr std::chrono::seconds pause_between_starts{2};
/// How long other contexts may take to return to a directory, after this one has.
inline constexpr std::chrono::seconds return_limit{5};

// ---- files
/// The record in which a directory keeps its identity.
inline constexpr std::size_t max_record_bytes = std::size_t{64} << 10;

}  // namespace amalgam::detail::limits
