#include "questions.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include "perf/pair.hpp"

namespace amalgam::bench {

length length::parse(const char* text) {
    char* end = nullptr;
    const double number = std::strtod(text, &end);
    const std::string_view unit = end;
    if (end == text || !std::isfinite(number) || number <= 0 || (unit != "" && unit != "x"))
        throw std::invalid_argument("\"" + std::string(text) +
                                    "\" is not a length, expected seconds, such as 0.1, or a "
                                    "number of operations, such as 20000x");
    length parsed;
    if (unit == "x") {
        parsed.operations_ = static_cast<std::size_t>(number);
    } else {
        parsed.seconds_ = std::chrono::duration<double>(number);
    }
    return parsed;
}

int answer_one(int argc, char** argv, std::span<const question> known) {
    const std::string_view name = argc > 1 ? argv[1] : "";
    const auto asked = std::find_if(known.begin(), known.end(),
                                    [&](const question& each) { return each.name == name; });
    if (asked == known.end() || argc > 3) {
        std::string names;
        for (const question& each : known)
            names.append(names.empty() ? "" : "|").append(each.name);
        std::fprintf(stderr, "usage: %s %s [SECONDS|OPERATIONSx]\n", argv[0], names.c_str());
        return 2;
    }
    try {
        const length how_long = argc == 3 ? length::parse(argv[2]) : length{};
        perf::pin_to_processor(0);
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], asked->answer(how_long));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s %s: %s\n", argv[0], argv[1], e.what());
        return 1;
    }
}

namespace {

std::size_t memory_of(std::string_view kind) {
    // Not /proc/self/statm: the kernel counts that per thread, and sums up only now and then.
    std::ifstream lines("/proc/self/smaps_rollup");
    for (std::string word; lines >> word;) {
        std::size_t kibibytes = 0;
        if (word == kind && lines >> kibibytes) return kibibytes * 1024;
    }
    throw std::runtime_error("/proc/self/smaps_rollup does not show the memory");
}

}  // namespace

std::size_t resident_bytes() {
    return memory_of("Rss:");
}

std::size_t proportional_bytes() {
    return memory_of("Pss:");
}

std::size_t own_and_shared_bytes() {
    return memory_of("Pss_Anon:") + memory_of("Pss_Shmem:");
}

}  // namespace amalgam::bench
