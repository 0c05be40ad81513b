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
/// Names and groups of a manifest, each, and the bytes of one.
inline constexpr std::size_t max_manifest_names = 64;
inline constexpr std::size_t max_manifest_name_bytes = 255;
inline constexpr std::chrono::sys_seconds last_manifest_time{std::chrono::seconds{7258118399}};

// ---- what a target knows of images
inline constexpr std::size_t max_revocation_list_bytes = std::size_t{4} << 20;
inline constexpr std::size_t max_version_file_bytes = std::size_t{16} << 20;
/// Names of which a target remembers the highest version. Images of further names that have one
/// are refused: to forget one that is remembered would let its earlier versions in again.
inline constexpr std::size_t max_version_names = 65536;
/// How often a target looks whether its revocation list has changed, or an image has expired.
inline constexpr std::chrono::seconds policy_interval{1};

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
