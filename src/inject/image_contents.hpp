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

namespace amalgam::detail {

/// What a part of an image may do in memory. Never to be written and run.
enum class image_rights : std::uint8_t { read, read_write, read_execute };

/// A part of the memory that an image takes: its first bytes, and zeros behind.
struct image_segment {
    image_rights rights = image_rights::read;
    std::uint32_t offset = 0;  ///< In the image's memory.
    std::uint32_t bytes = 0;   ///< In memory.
    std::span<const std::uint8_t> content{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(rights, offset, bytes, content);
    }
};

/// How a word of 8 bytes is filled in when the image is linked.
enum class image_fixup : std::uint8_t {
    relative,       ///< The address of `addend` in the image.
    import,         ///< That of an import, and `addend`.
    thread_module,  ///< What names its thread-local data.
    thread_offset   ///< `addend`, an offset in them.
};

struct image_relocation {
    std::uint32_t offset = 0;  ///< Of the word, in a segment that can be written.
    std::uint32_t symbol = 0;  ///< Of an import, its index.
    std::int64_t addend = 0;
    image_fixup what = image_fixup::relative;

    template <typename Archive>
    void serialize(Archive& a) {
        a(offset, symbol, addend, what);
    }
};

struct image_import {
    std::string_view name{};
    bool weak = false;  ///< Null where there is none.

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

/// A part of the image's memory.
struct image_range {
    std::uint32_t offset = 0;
    std::uint32_t bytes = 0;

    template <typename Archive>
    void serialize(Archive& a) {
        a(offset, bytes);
    }
};

/// Thread-local data: each thread has its own.
struct image_thread_data {
    image_range initial{};  ///< What they begin with; then zeros.
    std::uint32_t bytes = 0;
    std::uint32_t alignment = 1;

    template <typename Archive>
    void serialize(Archive& a) {
        a(initial, bytes, alignment);
    }
};

/// An image for several processors.
struct joined_images {
    static constexpr std::uint32_t magic = 0x74614941;  // "AIat"
    static constexpr std::size_t most = 8;

    std::vector<std::span<const std::uint8_t>> parts{};  ///< Each an image, unsigned.

    template <typename Archive>
    void serialize(Archive& a) {
        a(parts);
    }
};

/// Behind an image's bytes.
struct image_signature {
    static constexpr std::uint32_t magic = 0x67694149;  // "IAig"
    signer_key by{};
    std::array<std::uint8_t, 64> proof{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(by, proof);
    }
};

/// An image, read. Everything in it points into `bytes`.
struct image_contents {
    static constexpr std::uint32_t magic = 0x676d4941;  // "AImg"
    static constexpr std::uint16_t version = 1;
    static constexpr std::uint32_t most_bytes = 64u << 20;  ///< Of its memory.
    /// Of a file: more than one for all processors takes.
    static constexpr std::size_t most_file_bytes = std::size_t{256} << 20;
    static constexpr std::size_t most_payload_alignment = 4096;
    static constexpr std::uint32_t page = 4096;  ///< That no two segments share.

    std::string_view name{};
    amalgam::architecture architecture = amalgam::architecture::x86_64;
    std::uint32_t memory_bytes = 0;
    std::uint32_t payload_alignment = 16;
    std::vector<image_segment> segments{};  ///< In order; each on pages of its own.
    image_range read_only_later{};          ///< Of what is written when it is linked only.
    std::vector<image_relocation> relocations{};
    std::vector<image_import> imports{};
    std::vector<image_export> exports{};
    image_range begin{};   ///< Addresses of functions to run first,
    image_range end{};     ///< and last.
    image_range unwind{};  ///< .eh_frame, with its end.
    image_thread_data thread_data{};

    std::vector<std::byte> bytes{};
    std::size_t unsigned_bytes = 0;  ///< Without the signature.
    image_hash hash{};
    std::uint64_t number = 0;  ///< By which messages name it.
    std::optional<image_signature> signature{};
    std::vector<amalgam::architecture> architectures{};

    template <typename Archive>
    void serialize(Archive& a) {
        a(name, architecture, memory_bytes, payload_alignment, segments, read_only_later,
          relocations, imports, exports, begin, end, unwind, thread_data);
    }

    const image_export* find(std::string_view which) const noexcept;
    /// Precondition: it is right in itself, but for `bytes` and `hash`.
    static std::vector<std::byte> to_bytes(const image_contents& what);
    /// Why it is not right in itself; nothing: it is.
    std::optional<std::string> fault() const;
};

}  // namespace amalgam::detail
