#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/inject/image_manifest.hpp>

namespace amalgam::detail {

/// Access rights of a part of an image. Never both writable and executable.
enum class image_rights : std::uint8_t { read, read_write, read_execute };

/// A part of an image's memory: its first bytes, followed by zeros.
struct image_segment {
    image_rights rights = image_rights::read;
    std::uint32_t offset = 0;  ///< Within the image's memory.
    std::uint32_t bytes = 0;   ///< In memory.
    std::span<const std::uint8_t> content{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(rights, offset, bytes, content);
    }
};

/// How linking fills in a word of 8 bytes.
enum class image_fixup : std::uint8_t {
    relative,       ///< Address of `addend` in the image.
    import,         ///< Address of an import, plus `addend`.
    thread_module,  ///< Identifier of its thread-local data.
    thread_offset   ///< `addend`, an offset into that data.
};

struct image_relocation {
    std::uint32_t offset = 0;  ///< Of the word, in a writable segment.
    std::uint32_t symbol = 0;  ///< For an import, its index.
    std::int64_t addend = 0;
    image_fixup what = image_fixup::relative;

    template <typename Archive>
    void serialize(Archive& a) {
        a(offset, symbol, addend, what);
    }
};

struct image_import {
    std::string_view name{};
    bool weak = false;  ///< Null if not found.

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, weak);
    }
};

struct image_export {
    std::string_view name{};
    std::uint32_t offset = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, offset);
    }
};

/// A range of the image's memory.
struct image_range {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(offset, bytes);
    }
};

/// Thread-local data, one copy per thread.
struct image_thread_data {
    image_range initial{};  ///< Initial bytes; then zeros.
    std::uint32_t bytes = 0;
    std::uint32_t alignment = 1;

    template <typename Archive>
    void serialize(Archive& a) {
        a(initial, bytes, alignment);
    }
};

/// An image for several architectures.
struct joined_images {
    static constexpr std::uint32_t magic = 0x74614941;  // "AIat"

    std::vector<std::span<const std::uint8_t>> parts{};  ///< Unsigned images.

    template <typename Archive>
    void serialize(Archive& a) {
        a(parts);
    }
};

/// Follows the image's bytes. The proof, which is last, is of all that precedes it.
struct image_signature {
    static constexpr std::uint32_t magic = 0x616d4941;  // "AIma"
    image_manifest manifest{};
    signer_key by{};
    std::array<std::uint8_t, 64> proof{};

    template <typename Archive>
    void serialize(Archive& a) {
        std::int64_t from = manifest.not_before.time_since_epoch().count();
        std::optional<std::int64_t> until;
        if (manifest.not_after) until = manifest.not_after->time_since_epoch().count();
        a(manifest.version, from, until, manifest.names, manifest.groups, by, proof);
        if constexpr (Archive::loading) {
            manifest.not_before = std::chrono::sys_seconds(std::chrono::seconds(from));
            if (until) manifest.not_after.emplace(std::chrono::seconds(*until));
        }
    }
};

/// Why it is no manifest; empty if it is one.
std::optional<std::string> fault_of_manifest(const image_manifest& what);
/// "node7, group compute"; empty if it is for all targets.
std::string audience_of(const image_manifest& what);
/// "2027-01-31 12:00:00 UTC".
std::string text_of_time(std::chrono::sys_seconds time);

/// A parsed image. Everything in it points into `bytes`.
struct image_contents {
    static constexpr std::uint32_t magic = 0x676d4941;  // "AImg"
    static constexpr std::uint16_t version = 1;
    static constexpr std::uint32_t page = 4096;  ///< Not shared by two segments.

    std::string_view name{};
    amalgam::architecture architecture = amalgam::architecture::x86_64;
    std::uint32_t memory_bytes = 0;
    std::uint32_t payload_alignment = 16;
    std::vector<image_segment> segments{};  ///< In order; each on its own pages.
    image_range read_only_later{};          ///< Written only while linking.
    std::vector<image_relocation> relocations{};
    std::vector<image_import> imports{};
    std::vector<image_export> exports{};
    image_range begin{};   ///< Addresses of initializers,
    image_range end{};     ///< and finalizers.
    image_range unwind{};  ///< .eh_frame, with its terminator.
    image_thread_data thread_data{};

    std::vector<std::byte> bytes{};
    std::size_t unsigned_bytes = 0;  ///< Without the signature.
    image_hash hash{};
    std::uint64_t number = 0;  ///< Names it in messages.
    std::optional<image_signature> signature{};
    std::vector<amalgam::architecture> architectures{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, architecture, memory_bytes, payload_alignment, segments, read_only_later,
          relocations, imports, exports, begin, end, unwind, thread_data);
    }

    const image_export* find(std::string_view which) const noexcept;
    /// Precondition: it is consistent, except for `bytes` and `hash`.
    static std::vector<std::byte> to_bytes(const image_contents& what);
    /// Why it is inconsistent; empty if it is not.
    std::optional<std::string> fault() const;
};

}  // namespace amalgam::detail
