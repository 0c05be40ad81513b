#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <amalgam/core/random.hpp>

#include "fuzz/fuzz.hpp"

namespace amalgam::fuzz {
namespace {

constexpr std::size_t inputs = AMALGAM_FUZZ_INPUTS;  // For all seeds together.

/// One small change, of a kind that breaks parsers.
void mutate(std::string& input, seeded_random& random) {
    std::size_t at = input.empty() ? 0 : random.below(input.size());
    std::string_view other = seeds()[random.below(seeds().size())];
    constexpr std::string_view telling("\0\xff:/[]%+?&=.\x80\x7f 90", 18);
    switch (random.below(7)) {
        case 0:
            if (!input.empty()) input[at] = static_cast<char>(random());
            break;
        case 1:
            if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << random.below(8)));
            break;
        case 2:
            input.insert(at, 1, telling[random.below(telling.size())]);
            break;
        case 3:
            input.erase(at, random.below(4) + 1);
            break;
        case 4:
            input.resize(at);
            break;
        case 5:
            input = input.substr(0, at) + std::string(other.substr(random.below(other.size() + 1)));
            break;
        case 6:
            if (input.size() < 4096) input.insert(at, input.substr(at));
            break;
    }
}

TEST(AMALGAM_FUZZED, mutated_inputs_keep_every_property) {
    seeded_random random(20240229);
    for (std::string_view seed : seeds()) {
        run_one(as_bytes_of(seed));
        for (std::size_t i = 0; i < inputs / seeds().size(); ++i) {
            std::string input(seed);
            for (std::uint64_t changes = random.below(5) + 1; changes > 0; --changes) {
                mutate(input, random);
            }
            // A heap copy of exact length: AddressSanitizer detects overruns.
            std::vector<char> exact(input.begin(), input.end());
            run_one(as_bytes_of(exact));
        }
    }
}

}  // namespace
}  // namespace amalgam::fuzz
