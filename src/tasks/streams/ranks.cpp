#include "tasks/streams/ranks.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

namespace {

// Never destroyed: streams may end after main() returned.
std::vector<bool>& taken_ranks() {
    alignas(std::vector<bool>) static std::byte memory[sizeof(std::vector<bool>)];
    static auto* const all = new (memory) std::vector<bool>;
    return *all;
}

}  // namespace

std::mutex& ranks::lock() noexcept {
    static constinit std::mutex one;
    return one;
}

int ranks::take(int wanted) {
    const std::lock_guard hold(lock());
    auto& taken = taken_ranks();
    if (wanted < -1 || wanted > most) {
        throw error(errc::invalid,
                    fmt::format("a stream cannot have rank {}, expected 0 to {}, or -1 for the "
                                "lowest that is free",
                                wanted, most));
    }
    const auto at = wanted >= 0 ? static_cast<std::size_t>(wanted)
                                : static_cast<std::size_t>(
                                      std::find(taken.begin(), taken.end(), false) - taken.begin());
    if (at >= taken.size()) taken.resize(at + 1);
    if (taken[at]) {
        throw error(errc::invalid, fmt::format("rank {} belongs to another stream: choose one that "
                                               "is free, or -1 for the lowest that is",
                                               wanted));
    }
    taken[at] = true;
    return static_cast<int>(at);
}

void ranks::give_back(int rank) noexcept {
    if (rank < 0) return;
    const std::lock_guard hold(lock());
    auto& taken = taken_ranks();
    if (static_cast<std::size_t>(rank) < taken.size())
        taken[static_cast<std::size_t>(rank)] = false;
}

void ranks::forget_all() noexcept {
    auto& taken = taken_ranks();
    std::fill(taken.begin(), taken.end(), false);
}

}  // namespace amalgam::detail
