#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

#include "fabric/trust/keys/pem.hpp"

namespace amalgam::detail {

/// In ASCII: what names of keys and of hosts are made of.
bool is_letter_or_digit(char c) noexcept;

/// File of pre-shared keys in a folder of keys.
inline constexpr const char* pre_shared_file = "shared.keys";

/// Keys that two or more endpoints were given, each with a name. As text, a line each, as GnuTLS
/// has them:
///
///     node7:8f3a…   (32 to 128 hexadecimal digits)
///
/// The first is the own one, by which an endpoint proves itself when it connects. An endpoint that
/// others connect to takes all.
///
/// Threads: immutable. The keys are in the secure heap.
class pre_shared_keys {
public:
    static constexpr std::size_t least_bytes = 16, most_bytes = 64;
    static constexpr std::size_t made_bytes = 32;  ///< Of a new one.
    static constexpr std::size_t most_keys = 1024;
    static constexpr std::size_t most_name_bytes = 64;  ///< As of a common name, by X.520.
    /// Longest text.
    static constexpr std::size_t most_text_bytes =
        most_keys * (most_name_bytes + 1 + 2 * most_bytes + 1);

    struct key {
        std::string name;
        std::span<const unsigned char> secret;
    };

    /// The `called` is the path, or says what text it is. No sentence has a part of a line, which
    /// may be a key.
    /// Failure: `invalid` for no key, too many, a line that is not as above or is cut, and a name
    ///          that comes twice.
    static result<pre_shared_keys> in(std::string_view text, const std::string& called);
    /// The file, which nobody but its owner may read. Failure: as read_secret_file(), and as above.
    static result<pre_shared_keys> in_file(const std::string& path);

    const key& own() const noexcept { return all_.front(); }
    std::span<const key> all() const noexcept { return all_; }
    const key* find(std::string_view name) const noexcept;

private:
    explicit pre_shared_keys(std::size_t text_bytes) : secrets_(text_bytes / 2 + 1) {}
    result<void> take(std::string_view line, std::size_t number, const std::string& called);

    secret_text secrets_;
    std::vector<key> all_;
};

/// What a file of them is to read_secret_file().
inline constexpr secret_kind kind_of_pre_shared_file{.what = "pre-shared keys",
                                                     .most_bytes = pre_shared_keys::most_text_bytes,
                                                     .says_whom_to_trust = true};

/// Letters, digits and ._@- up to 64, of which the first is a letter or digit; but not the
/// fingerprint of a key, which is the name of another kind of peer.
bool is_key_name(std::string_view name) noexcept;

// The functions below change text of keys, as `amalgam key` does, and leave no copy of it.

/// A line with a key that nobody else has.
secret_text new_pre_shared_key(std::string_view name);
/// The own line of the text.
std::string_view own_line(std::string_view text) noexcept;
/// `line` in place of the own one; `line` and all others of the text.
secret_text with_own(std::string_view text, std::string_view line);
/// The text with that line behind it.
secret_text with_line(std::string_view text, std::string_view line);
/// The text without the line of that name.
secret_text without_line(std::string_view text, std::string_view name);

}  // namespace amalgam::detail
