#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/detail/printable.hpp>

#include "fabric/trust/keys/trusted_keys.hpp"
#include "fuzz/fuzz.hpp"

// The text of a file of trusted keys, and what `amalgam key` makes of it.
namespace amalgam::fuzz {

using namespace detail;

void run_one(const_bytes input) {
    const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto keys = trusted_keys_in(text, "the text");
    if (!keys) {
        require(keys.code() == errc::invalid, "what is refused has a code that callers know");
        require(!keys.sentence().empty() && !has_controls(keys.sentence()),
                "what is refused is told in one line");
        return;
    }
    require(keys->size() <= most_trusted_keys, "there are not too many");
    key_fingerprint fresh;
    fresh.bytes = {1, 2, 3};
    const auto more = trusted_keys_in(with_trusted_key(text, fresh), "the text");
    require(more ? more->size() == keys->size() + 1 && more->back() == fresh &&
                       std::equal(keys->begin(), keys->end(), more->begin())
                 : keys->size() == most_trusted_keys,
            "a key is added, and the others stay");
    if (keys->empty()) return;
    const key_fingerprint last = keys->back();
    std::vector<key_fingerprint> rest = *keys;
    std::erase(rest, last);
    const auto less = trusted_keys_in(without_trusted_key(text, last), "the text");
    require(less && *less == rest, "a key is taken out wherever it is, and the others stay");
}

std::span<const std::string_view> seeds() {
    static constexpr std::array<std::string_view, 3> all{
        "# ours\n\n0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef # a\r\n",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\n"
        "0000000000000000000000000000000000000000000000000000000000000000\n"
        "  ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "#\n \t\n"};
    return all;
}

}  // namespace amalgam::fuzz
