#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/inject/code_image.hpp>

namespace amalgam {

/// Images and signers that may run nowhere any more. As text a line for each, as `amalgam inject
/// revoke` writes them; what follows a # is a comment:
///
///     key 5e1c…      # 64 digits, as amalgam inject key prints them
///     image 09af…    # 64 digits, as amalgam inject show prints the hash
///
/// Threads: a plain value.
struct image_revocations {
    std::vector<signer_key> keys{};    ///< Public keys of signers.
    std::vector<image_hash> images{};  ///< Hashes of images.

    /// Whether it names the image, or who claims to have signed it.
    bool revokes(const code_image& image) const noexcept;

    /// Failure: `not_found` if the file cannot be read; `invalid` for one of more than 4 MiB, and
    ///          for a line that is none of these, which the sentence shows.
    static result<image_revocations> load(const std::string& path);
    static result<image_revocations> parse(std::string_view text);
    /// Adds these to the end of a file, which is made if it is not there. Targets that read it see
    /// all of them or none. Failure: throws error{denied}.
    void append_to(const std::string& path) const;
};

}  // namespace amalgam
