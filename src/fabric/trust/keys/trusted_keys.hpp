#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/fabric/identity.hpp>

namespace amalgam::detail {

// Keys that an endpoint trusts, whoever certified them. As text, a fingerprint a line, as `amalgam
// key show` prints it. Blank lines, and what is behind a #, say nothing.

/// File of trusted keys in a folder of keys.
inline constexpr const char* trusted_file = "trusted.keys";
/// What such a file is to read_trusted_file().
inline constexpr const char* kind_of_trusted_file =
    "a file of trusted keys; example of a line: "
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 # node7";
/// In one file.
inline constexpr std::size_t most_trusted_keys = 1024;

/// 64 hexadecimal digits.
bool is_fingerprint(std::string_view text) noexcept;
/// As people give one: such digits, or with a colon between bytes, as openssl prints digests.
std::optional<key_fingerprint> fingerprint_in(std::string_view text) noexcept;
/// Why there is none in the text: "has 63 hexadecimal digits, not 64".
std::string why_no_fingerprint(std::string_view text);
/// Whether a user means one, right or wrong, and not the name of a key: more digits than a serial
/// number has, or what `openssl x509` prints.
bool is_meant_as_fingerprint(std::string_view text) noexcept;

/// In the order of the text; may be none. The `called` is the path, or says what text it is.
/// Failure: `invalid` for a line that is no fingerprint, which is told by its number, and for too
///          many.
result<std::vector<key_fingerprint>> trusted_keys_in(std::string_view text,
                                                     const std::string& called);

// As `amalgam key` changes such text: comments stay.

/// With that key behind it.
std::string with_trusted_key(std::string text, const key_fingerprint& key);
/// Without the lines of that key, of which there may be several.
std::string without_trusted_key(std::string_view text, const key_fingerprint& key);

}  // namespace amalgam::detail
