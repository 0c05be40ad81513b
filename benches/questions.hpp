#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace amalgam::bench {

/// Length of a loop: a time, to be measured, or a number of operations, for an external instruction
/// counter.
class length {
public:
    /// "0.1" means seconds, "20000x" operations. Throws std::invalid_argument for anything else.
    static length parse(const char* text);

    /// Runs `block()`, which does `operations` operations, repeatedly; returns the time per
    /// operation of the median block, so that interruptions by the machine do not matter. If the
    /// length is a number of operations, returns 0 without timing.
    template <typename Block>
    double nanoseconds_each(std::size_t operations, Block&& block) const {
        for (std::size_t done = 0; done < operations_; done += operations)
            block();
        if (operations_ != 0) return 0;

        const auto start = clock::now();
        while (clock::now() - start < seconds_ / 10)
            block();
        std::vector<double> blocks;
        do {
            const auto begin = clock::now();
            block();
            blocks.push_back(nanoseconds(clock::now() - begin).count());
        } while (clock::now() - start < seconds_);
        const auto middle = blocks.begin() + static_cast<std::ptrdiff_t>(blocks.size() / 2);
        std::nth_element(blocks.begin(), middle, blocks.end());
        return *middle / static_cast<double>(operations);
    }

private:
    using clock = std::chrono::steady_clock;
    using nanoseconds = std::chrono::duration<double, std::nano>;

    std::chrono::duration<double> seconds_{0.1};
    std::size_t operations_ = 0;
};

/// One sub-command of a program, and the function that measures its value.
struct question {
    std::string_view name;
    double (*answer)(const length&);
};

/// A program's main(): pins itself to the first processor, answers the question named by the first
/// argument, with the length in the second, and prints one line of JSON.
int answer_one(int argc, char** argv, std::span<const question> known);

/// Resident memory of this process now, in bytes, exactly.
std::size_t resident_bytes();
/// The same, with what several processes share counted in parts (proportional set size).
std::size_t proportional_bytes();
/// The same without files: code that is run for the first time adds nothing.
std::size_t own_and_shared_bytes();

}  // namespace amalgam::bench
