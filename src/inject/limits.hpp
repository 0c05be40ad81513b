#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Sizes and times of inject that users do not set; those that they set are in
/// <amalgam/inject/injection_target.hpp> and <amalgam/inject/injector.hpp>. Those marked "wire" are
/// refused when exceeded.
namespace amalgam::detail::limits {

// ---- images. Wire.
inline constexpr std::uint32_t max_image_memory = 64u << 20;
/// Of a file: more than a combined image for all architectures needs.
inline constexpr std::size_t max_image_file_bytes = std::size_t{256} << 20;
inline constexpr std::size_t max_joined_images = 8;
/// Relocations, imports and exports of an image, each.
inline constexpr std::size_t max_image_parts = 65536;
inline constexpr std::size_t max_payload_alignment = 4096;
inline constexpr std::size_t max_key_file_bytes = 4096;

// ---- messages whose image is fetched from their sender
/// Images fetched at once, in total and from one peer.
inline constexpr std::size_t max_fetched_images = 64;
inline constexpr std::size_t max_fetched_images_per_peer = 8;
inline constexpr std::chrono::seconds fetch_limit{30};

// ---- rings that a source writes to
inline constexpr std::uint64_t min_ring_bytes = 4096;
inline constexpr std::uint64_t max_ring_bytes = std::uint64_t{1} << 30;

/// Why code failed, or was refused, is cut to this.
inline constexpr std::size_t max_reason_bytes = 1024;

}  // namespace amalgam::detail::limits
