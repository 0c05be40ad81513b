#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <amalgam/core/clock.hpp>

#include "directory/registry.hpp"

namespace amalgam::detail {

/// Searches that other servers have under way here. One that nobody asks for a while is dropped,
/// as is the one that was asked the longest ago when there are too many.
///
/// Threads: one at a time, and none in the registry.
class guest_searches {
public:
    static constexpr std::size_t most = 65536;
    static constexpr std::chrono::seconds patience{60};

    explicit guest_searches(registry& of) noexcept : registry_(of) {}

    /// Keeps a search that has more to give. Returns its number.
    std::uint64_t keep(std::unique_ptr<store_search> search, clock::time_point now);
    /// Its next answer; over: it is not kept any more.
    store_search::outcome next(std::uint64_t number, std::size_t looks, clock::time_point now,
                               found_values& into);
    void stop(std::uint64_t number) { all_.erase(number); }
    std::size_t size() const noexcept { return all_.size(); }

private:
    struct guest {
        std::unique_ptr<store_search> search;
        clock::time_point asked;
    };
    void make_room(clock::time_point now);

    registry& registry_;
    std::map<std::uint64_t, guest> all_;
};

}  // namespace amalgam::detail
