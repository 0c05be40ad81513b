#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Sizes, windows and times of the transports. Those that users set (when a peer is considered
/// lost, how much may be queued, how many connections may be pending) are port_options in
/// <amalgam/fabric/transport.hpp>. Those marked "wire" must be equal at both ends.
namespace amalgam::detail::limits {

// ---- messages
/// Longest message of every transport but loop.
inline constexpr std::size_t max_message_bytes = std::size_t{1} << 30;
/// Longest frame: a message, or a piece of a transfer, with what precedes its payload.
inline constexpr std::uint32_t max_frame_bytes = max_message_bytes + 4096;

// ---- put and get, as frames
/// A put or get longer than this is split into several frames. Wire.
inline constexpr std::size_t rma_piece_bytes = std::size_t{256} << 10;
/// Limit of unanswered pieces to one peer. Wire: replies to a peer that respects it always fit in
/// the target's queue, so two ports that serve each other cannot deadlock.
inline constexpr std::size_t rma_window = 64;

// ---- frames queued behind a full socket or carrier, per connection
/// Longest payload that is copied into the queue; a longer one stays in the sender's memory.
inline constexpr std::size_t max_copy_bytes = 8192;
/// Bytes copied, and frames borrowed, before further frames are refused as `full`.
inline constexpr std::size_t max_copied_bytes = std::size_t{128} << 10;
inline constexpr std::size_t max_borrowed_frames = 256;

// ---- packets
inline constexpr std::size_t packet_bytes = 65536;
/// Packets of frames that the receiver has not consumed. Wire.
inline constexpr unsigned packet_window = 64;

// ---- shared memory (layout.hpp). Wire.
/// Each of the two rings between two ports.
inline constexpr std::size_t shm_ring_bytes = std::size_t{256} << 10;
/// Longest payload sent contiguously as one record. An eighth of the ring, so that a consumer that
/// returns space in quarters never starves a producer that waits for it.
inline constexpr std::size_t shm_whole_bytes = shm_ring_bytes / 8;
/// Part of a longer payload sent with its header; the rest follows in pieces.
inline constexpr std::size_t shm_prefix_bytes = 64;
/// Longest piece. Half of the longest whole record: the reader starts sooner.
inline constexpr std::size_t shm_piece_bytes = shm_ring_bytes / 16;
/// Connections that have not said hello; further ones wait in the kernel's backlog.
inline constexpr std::size_t shm_max_pending = 256;
/// Connections taken from the backlog before the port looks after those that stand: whoever
/// connects again and again must not hold them up.
inline constexpr int shm_accepts_at_once = 64;
/// Connections with processes of other users, of all of them and of one; each takes up to 516 KiB
/// of memory, which may be charged to this process.
inline constexpr std::size_t shm_max_of_others = 1024;
inline constexpr std::size_t shm_max_of_one_user = 512;

/// From this size, a put or get that the kernel carries out pays for its system call.
inline constexpr std::size_t cross_memory_bytes = std::size_t{16} << 10;

// ---- trust
/// Longest file, or text, of certificates and revocation lists in PEM, and of a private key.
inline constexpr std::size_t most_pem_bytes = std::size_t{4} << 20;
inline constexpr std::size_t most_key_bytes = std::size_t{32} << 10;
/// Certificates, or revocation lists, in one of them.
inline constexpr std::size_t most_pem_parts = 256;
/// Longest chain of certificates that a peer may send. OpenSSL's default is 100 KiB.
inline constexpr long max_chain_bytes = 32L << 10;
/// How often files of credentials are looked at, at most.
inline constexpr std::chrono::milliseconds credentials_interval{1000};

// ---- broadcasts
/// Certificates of senders that were verified and are remembered, at most.
inline constexpr std::size_t max_signers = 4096;

// ---- closing
/// A port that ends lets what was sent leave for so long.
inline constexpr std::chrono::milliseconds flush_limit{200};

}  // namespace amalgam::detail::limits
