#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Sizes, windows and times of rpc that users do not set; those that they set are engine_options
/// (<amalgam/rpc/engine.hpp>). What is marked "wire" is refused when it is exceeded.
namespace amalgam::detail::limits {

// ---- messages
inline constexpr std::size_t max_sentence_bytes = 4096;    ///< Of a failure. Wire.
inline constexpr std::size_t max_name_bytes = 255;         ///< Of a procedure. Wire.
inline constexpr std::size_t max_signature_bytes = 16384;  ///< Wire.
inline constexpr std::size_t max_extras_bytes = 65536;     ///< Wire.

/// Names that nobody defined, which a handler for such remembers.
inline constexpr std::size_t max_learned_names = 1024;
inline constexpr std::size_t max_about_bytes = 1024;  ///< What is said of a procedure.
/// Procedures described by one answer, and those that a caller asks for.
inline constexpr std::size_t max_described_at_once = 200;
inline constexpr std::size_t max_described = 100'000;

/// The time of at least one call in so many is measured, of each procedure served and of all calls
/// made: two looks at a clock cost a tenth of the instructions of a call.
inline constexpr std::uint64_t measured_call_in = 1024;
/// Procedures whose calls are measured.
inline constexpr std::size_t max_measured_procedures = 1000;

/// What is told of an engine that hangs: of its calls and handlers each; of ULTs and threads; peers
/// that it asks, and for how long; addresses of a peer, and the size of each.
inline constexpr std::size_t max_open_calls_told = 256;
inline constexpr std::size_t max_units_told = 1024;
inline constexpr std::size_t max_peers_asked = 64;
inline constexpr std::uint32_t longest_asking_ms = 10'000;
inline constexpr std::size_t max_addresses_told = 8;
inline constexpr std::size_t max_address_bytes_told = 512;

/// What is told of ULTs: calls of a stack, bytes of a name or call, and of all together.
inline constexpr std::size_t max_frames_told = 64;
inline constexpr std::size_t max_frame_bytes_told = 400;
inline constexpr std::size_t max_stack_bytes_told = std::size_t{512} << 10;

// ---- transfers of bulk memory
inline constexpr std::size_t transfer_piece_bytes = std::size_t{1} << 20;
/// Pieces with more segments are made shorter.
inline constexpr std::size_t max_piece_segments = 16;
/// Bytes of one transfer in flight, and pieces.
inline constexpr std::size_t transfer_window_bytes = std::size_t{4} << 20;
inline constexpr unsigned max_transfer_window = 16;
/// Bytes per turn, if posting copies.
inline constexpr std::size_t transfer_turn_bytes = std::size_t{1} << 20;

// ---- peers
/// Addresses kept of lost peers that were looked up, and of those that connected to us.
inline constexpr std::size_t max_lost_looked_up = 4096;
inline constexpr std::size_t max_lost_came = 256;
/// Lost names of an engine still reached, since paths may come and go often.
inline constexpr std::size_t max_lost_names = 64;
/// Undelivered messages to ourselves; past it: `full`.
inline constexpr std::size_t max_self_waiting = 1024;

// ---- times
/// For the other addresses of an engine, once one has answered.
inline constexpr std::chrono::milliseconds introduction_limit{200};
/// When an engine ends: for replies of handlers whose own calls were just ended.
inline constexpr std::chrono::milliseconds last_messages_limit{100};

}  // namespace amalgam::detail::limits
