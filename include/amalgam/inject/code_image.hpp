#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/result.hpp>

namespace amalgam {

namespace detail {
struct image_contents;
}

/// The processors that images are built for.
enum class architecture : std::uint16_t { x86_64 = 1, aarch64 = 2 };

/// That of this process.
architecture this_architecture() noexcept;
std::string_view name(architecture which) noexcept;

/// BLAKE2b of an image's bytes, but for its signature: two images with the same one are the same.
using image_hash = std::array<std::uint8_t, 32>;

/// Who signs images: an Ed25519 key. A text of 64 digits in base 16.
using signer_key = std::array<std::uint8_t, 32>;
std::string to_text(const signer_key& key);  ///< Of an image_hash, too.
/// Failure: throws error{invalid}.
signer_key parse_signer_key(std::string_view text);

/// A signer's secret, which says its signer_key, too.
///
/// Threads: like a plain value. Its memory is wiped at its end.
class signing_key {
public:
    static signing_key generate();
    /// From a file that save() wrote.
    /// Failure: throws error{not_found}, {invalid}.
    static signing_key load(const std::string& path);
    signing_key(const signing_key&) = default;
    signing_key& operator=(const signing_key&) = default;
    ~signing_key();

    /// To a new file that only its owner may read. Failure: throws error{denied}.
    void save(const std::string& path) const;
    signer_key signer() const noexcept;

private:
    friend class code_image;
    signing_key() = default;
    std::array<std::uint8_t, 64> secret_{};
};

/// Code that travels: a function with all it needs, but for what it takes from the process that it
/// runs in. See docs/wire/inject.md; `amalgam inject build` makes them.
///
/// Holding one runs nothing. It was read carefully: every offset in it lies where it may.
/// Owner:   a handle; copies share the bytes, which never change.
/// Threads: like a plain value.
class code_image {
public:
    /// None, which one that was moved from is, too: it has no name, bytes, imports and exports, its
    /// hash is zeros, and what would keep or sign it throws error{invalid}.
    code_image() noexcept = default;

    /// Reads an image from bytes that nobody vouches for, and keeps them.
    /// Failure: `invalid`, with a sentence that says what is wrong with it.
    static result<code_image> parse(std::vector<std::byte> bytes);
    /// The same from a file.
    /// Failure: throws error{not_found}, {invalid}, that also for more than 256 MiB.
    static code_image load(const std::string& path);
    /// NAME.image in the folders of AMALGAM_IMAGE_PATH (with colons between them; the current one
    /// when it is not set), the first that there is.
    /// Failure: as load(); error{not_found} names the folders.
    static code_image find(std::string_view name);

    /// One for several processors: each target takes the part that is for its own. Signed as a
    /// whole, not in its parts.
    /// Failure: throws error{invalid} for none, for images of different names, two for one
    ///          processor, or such that are made of several themselves.
    static code_image joined(const std::vector<code_image>& parts);
    /// What it is for; of one for several processors those.
    std::vector<amalgam::architecture> architectures() const;

    /// The same, signed; by this one only.
    code_image signed_by(const signing_key& key) const;
    /// To a file that load() reads. Failure: throws error{denied}.
    void save(const std::string& path) const;

    explicit operator bool() const noexcept { return contents_ != nullptr; }

    std::string_view name() const noexcept;
    /// Of one for several processors what is for this process's, or the first.
    amalgam::architecture architecture() const noexcept;
    const image_hash& hash() const noexcept;
    const_bytes bytes() const noexcept;  ///< With its signature.
    /// Who signed it; nothing: nobody has. Whether that is true is not known.
    std::optional<signer_key> signer() const noexcept;
    /// It was signed by that one. Cost: some 100 us.
    bool verify() const noexcept;
    /// What it takes from the process that it runs in.
    std::vector<std::string_view> imports() const;
    /// What can be called in it.
    std::vector<std::string_view> exports() const;
    /// Its payloads are to lie at multiples of this.
    std::size_t payload_alignment() const noexcept;

    // For layers above.
    const detail::image_contents& contents() const noexcept { return *contents_; }

private:
    std::shared_ptr<const detail::image_contents> contents_;
};

}  // namespace amalgam
