#include "conformance/pattern.hpp"

#include <algorithm>
#include <cstring>

namespace amalgam::conformance {
namespace {

/// Makes the pattern a block at a time, and compares and copies whole blocks: gigabytes of it go
/// through a run of the suite. use(position, expected bytes) returns whether to go on.
template <typename Use>
void each_block(std::size_t size, std::uint64_t seed, std::uint64_t from, Use use) noexcept {
    std::byte block[4096];
    for (std::size_t done = 0; done < size;) {
        const std::uint64_t first = (from + done) / 8;
        const std::size_t skip = (from + done) % 8;
        const std::size_t now = std::min(size - done, sizeof block - skip);
        for (std::size_t at = 0; at < skip + now; at += 8)
            store_le(block + at, pattern_word(seed, first + at / 8));
        if (!use(done, const_bytes{block + skip, now})) return;
        done += now;
    }
}

}  // namespace

void fill_pattern(mutable_bytes bytes, std::uint64_t seed, std::uint64_t from) noexcept {
    each_block(bytes.size(), seed, from, [&](std::size_t at, const_bytes expected) {
        std::memcpy(bytes.data() + at, expected.data(), expected.size());
        return true;
    });
}

std::optional<std::size_t> pattern_break(const_bytes bytes, std::uint64_t seed,
                                         std::uint64_t from) noexcept {
    std::optional<std::size_t> found;
    each_block(bytes.size(), seed, from, [&](std::size_t at, const_bytes expected) {
        const const_bytes part = bytes.subspan(at, expected.size());
        if (std::memcmp(part.data(), expected.data(), part.size()) == 0) return true;
        const auto differs = std::mismatch(part.begin(), part.end(), expected.begin()).first;
        found = at + static_cast<std::size_t>(differs - part.begin());
        return false;
    });
    return found;
}

testing::AssertionResult is_pattern(const_bytes bytes, std::uint64_t seed, std::uint64_t from) {
    if (auto at = pattern_break(bytes, seed, from))
        return testing::AssertionFailure() << "byte " << *at << " of " << bytes.size()
                                           << " is not of the pattern with seed " << seed;
    return testing::AssertionSuccess();
}

bool are_same(const_bytes one, const_bytes other) noexcept {
    return one.size() == other.size() &&
           (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

testing::AssertionResult is_all(const_bytes bytes, std::byte value) {
    // Each byte equals the next, and the first is `value`: compared as fast as memory is read.
    if (bytes.empty() ||
        (bytes[0] == value && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0))
        return testing::AssertionSuccess();
    const auto other =
        std::find_if(bytes.begin(), bytes.end(), [value](std::byte each) { return each != value; });
    return testing::AssertionFailure()
           << "byte " << other - bytes.begin() << " of " << bytes.size() << " was touched";
}

}  // namespace amalgam::conformance
