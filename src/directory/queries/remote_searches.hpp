#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include <amalgam/core/clock.hpp>

#include "directory/resources/registry.hpp"

namespace amalgam::detail {

/// Searches that other servers run here. One is dropped when it has not been asked for a while.
/// When there are too many, or their queries are too long in total, the least recently asked one is
/// dropped.
///
/// Threads: one at a time, and none inside the registry.
class remote_searches {
public:
    struct limits {
        std::size_t searches = 65536;
        std::size_t bytes = std::size_t{256} << 20;  ///< Total size of the queries.
        std::chrono::seconds idle_limit{60};
    };

    explicit remote_searches(registry& of) noexcept : remote_searches(of, limits()) {}
    remote_searches(registry& of, const limits& most) noexcept : registry_(of), most_(most) {}

    /// Keeps a search that has more answers. Returns its number.
    std::uint64_t keep(std::unique_ptr<store_search> search, clock::time_point now);
    /// Its next answer; `over` if the search is no longer kept.
    store_search::outcome next(std::uint64_t number, std::size_t looks, clock::time_point now,
                               found_values& into);
    bool has(std::uint64_t number) const { return all_.contains(number); }
    void stop(std::uint64_t number);
    std::size_t size() const noexcept { return all_.size(); }

private:
    struct remote_search {
        std::unique_ptr<store_search> search;
        clock::time_point asked;
    };
    using searches = std::map<std::uint64_t, remote_search>;
    void make_room(clock::time_point now);
    searches::iterator drop(searches::iterator which);

    registry& registry_;
    const limits most_;
    searches all_;
    std::size_t bytes_ = 0;
};

}  // namespace amalgam::detail
