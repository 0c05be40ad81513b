#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>

#include <amalgam/core/status.hpp>

namespace amalgam::bench {

/// Milliseconds from the start of a program to its end: median of 100 runs, or of as many as 5
/// seconds have, at least 9. Throws error{internal} if it cannot be started or fails.
inline double milliseconds_of(std::vector<std::string> words) {
    using clock = std::chrono::steady_clock;
    constexpr std::size_t unmeasured = 5, runs = 100, fewest = 9;
    std::vector<char*> arguments;
    for (std::string& each : words)
        arguments.push_back(each.data());
    arguments.push_back(nullptr);
    std::vector<double> took;
    const auto until = clock::now() + std::chrono::seconds(5);
    while (took.size() < unmeasured + runs) {
        const auto begin = clock::now();
        if (took.size() >= unmeasured + fewest && begin > until) break;
        pid_t child = -1;
        int how = -1;
        const int failed =
            ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), ::environ);
        if (failed != 0 || ::waitpid(child, &how, 0) != child || how != 0)
            throw error(status{errc::internal, failed}, words[0] + " could not be run");
        took.push_back(std::chrono::duration<double, std::milli>(clock::now() - begin).count());
    }
    took.erase(took.begin(), took.begin() + unmeasured);
    const auto middle = took.begin() + static_cast<std::ptrdiff_t>(took.size() / 2);
    std::nth_element(took.begin(), middle, took.end());
    return *middle;
}

/// main() of a program that measures itself: with the word "begin" it does what is measured, and
/// without one it prints how long such a program takes.
inline int main_of_a_start(int argc, char** argv, void (*begin_and_end)()) {
    try {
        if (argc == 2 && std::string_view(argv[1]) == "begin") {
            begin_and_end();
            return 0;
        }
        std::printf("{\"test\": \"first\", \"value\": %.6g}\n",
                    milliseconds_of({argv[0], "begin"}));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}

}  // namespace amalgam::bench
