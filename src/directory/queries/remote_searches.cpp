#include "directory/queries/remote_searches.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {

std::uint64_t remote_searches::keep(std::unique_ptr<store_search> search, clock::time_point now) {
    make_room(now);
    const std::uint64_t number = random_nonzero_u64();
    bytes_ += search->query().bytes().size();
    all_[number] = {std::move(search), now};
    return number;
}

store_search::outcome remote_searches::next(std::uint64_t number, std::size_t looks,
                                            clock::time_point now, found_values& into) {
    const auto at = all_.find(number);
    if (at == all_.end()) return store_search::outcome::over;
    at->second.asked = now;
    const auto how = registry_.next(*at->second.search, looks, into);
    if (how == store_search::outcome::over) drop(at);
    return how;
}

void remote_searches::stop(std::uint64_t number) {
    if (const auto at = all_.find(number); at != all_.end()) drop(at);
}

remote_searches::searches::iterator remote_searches::drop(searches::iterator which) {
    bytes_ -= which->second.search->query().bytes().size();
    return all_.erase(which);
}

void remote_searches::make_room(clock::time_point now) {
    for (auto at = all_.begin(); at != all_.end();)
        at = now - at->second.asked > most_.idle_limit ? drop(at) : std::next(at);
    while (all_.size() >= most_.searches || (bytes_ > most_.bytes && !all_.empty())) {
        const auto oldest = std::min_element(
            all_.begin(), all_.end(),
            [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; });
        drop(oldest);
    }
}

}  // namespace amalgam::detail
