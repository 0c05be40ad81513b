#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

struct image_manifest;  // See image_manifest.hpp.
namespace detail {
struct image_contents;
}

/// Processor architectures of images.
enum class architecture : std::uint16_t {
    x86_64 = 1,  ///< AMD and Intel, 64 bits.
    aarch64 = 2  ///< Arm, 64 bits.
};

/// The architecture of this process.
architecture this_architecture() noexcept;
std::string_view name(architecture which) noexcept;

/// BLAKE2b hash of an image without its signature. Equal hashes mean equal images.
using image_hash = std::array<std::uint8_t, 32>;

/// Public Ed25519 key that identifies a signer. As text: 64 hexadecimal digits.
using signer_key = std::array<std::uint8_t, 32>;
std::string to_text(const signer_key& key);  ///< Works for an image_hash, too.
/// Failure: throws error{invalid}.
signer_key parse_signer_key(std::string_view text);

/// A signer's private key; includes the signer_key.
///
/// It is in memory that is locked, as far as RLIMIT_MEMLOCK allows, and in no core dump; wiped with
/// the last copy.
///
/// Threads: like a plain value; copies share what never changes.
class signing_key {
public:
    /// A fresh key from the system's random numbers.
    /// Failure: throws std::bad_alloc, as load() and save() do.
    static signing_key generate();
    /// Reads a file written by save().
    /// Failure: throws error{not_found}, {invalid}; {denied} if others than its owner may read it.
    static signing_key load(const std::string& path);
    signing_key(const signing_key&) = default;
    signing_key& operator=(const signing_key&) = default;

    /// Writes a new file that only its owner may read. Failure: throws error{denied}.
    void save(const std::string& path) const;
    signer_key signer() const noexcept;

private:
    friend class code_image;
    using secret = std::array<std::uint8_t, 64>;
    explicit signing_key(std::shared_ptr<const secret> made) noexcept : secret_(std::move(made)) {}
    std::shared_ptr<const secret> secret_;
};

/// Relocatable code: a function with everything it needs, except what it imports from the process
/// it runs in. See docs/wire/inject.md; `amalgam inject build` makes images.
///
/// Holding an image runs nothing. It has been validated: every offset in it is in bounds.
/// Owner:   a handle; copies share the bytes, which never change.
/// Threads: like a plain value.
class code_image {
public:
    /// Empty, as is a moved-from image: no name, bytes, imports or exports, and a zero hash. Saving
    /// or signing it throws error{invalid}.
    code_image() noexcept = default;

    /// Parses an image from untrusted bytes, and keeps them.
    /// Failure: `invalid`, with a sentence that says what is wrong.
    static result<code_image> parse(std::vector<std::byte> bytes);
    /// The same from a file.
    /// Failure: throws error{not_found}; {invalid}, also for more than 256 MiB.
    static code_image load(const std::string& path);
    /// Loads NAME.image from the first directory in AMALGAM_IMAGE_PATH that has it
    /// (colon-separated; unset: the current directory).
    /// Failure: as load(); error{not_found} lists the directories.
    static code_image find(std::string_view name);

    /// Combines images for several architectures; each target takes the part for its own. Signed as
    /// a whole, not per part.
    /// Failure: throws error{invalid} for an empty list, images with different names, two for one
    ///          architecture, or parts that are themselves combined.
    static code_image joined(const std::vector<code_image>& parts);
    /// The architectures it supports; several for a combined image.
    std::vector<amalgam::architecture> architectures() const;

    /// A signed copy; replaces any earlier signature and its manifest.
    /// Failure: throws error{invalid} for a manifest that breaks its limits.
    code_image signed_by(const signing_key& key, const image_manifest& manifest) const;
    code_image signed_by(const signing_key& key) const;  ///< With the default manifest.
    /// Writes a file for load(), which appears whole, or not at all. Failure: throws error{denied}.
    void save(const std::string& path) const;

    explicit operator bool() const noexcept { return contents_ != nullptr; }

    std::string_view name() const noexcept;
    /// For a combined image: this process's architecture if included, else the first.
    amalgam::architecture architecture() const noexcept;
    const image_hash& hash() const noexcept;
    const_bytes bytes() const noexcept;  ///< Including the signature.
    /// The claimed signer; empty if unsigned. Not verified: see verify().
    std::optional<signer_key> signer() const noexcept;
    /// What that signer claims; null if unsigned. Not verified, either. Lives as long as the image.
    const image_manifest* manifest() const noexcept;
    /// Whether the signature is valid. Cost: about 100 us. Failure: throws std::bad_alloc.
    bool verify() const;
    /// Symbols it needs from the process it runs in.
    std::vector<std::string_view> imports() const;
    /// Symbols it provides.
    std::vector<std::string_view> exports() const;
    /// Required alignment of its payloads.
    std::size_t payload_alignment() const noexcept;

    // For layers above.
    const detail::image_contents& contents() const noexcept { return *contents_; }

private:
    std::shared_ptr<const detail::image_contents> contents_;
};

}  // namespace amalgam
