#include "directory/guest_searches.hpp"

#include <algorithm>
#include <utility>

#include <amalgam/core/random.hpp>

namespace amalgam::detail {

std::uint64_t guest_searches::keep(std::unique_ptr<store_search> search, clock::time_point now) {
    make_room(now);
    const std::uint64_t number = random_nonzero_u64();
    all_[number] = {std::move(search), now};
    return number;
}

store_search::outcome guest_searches::next(std::uint64_t number, std::size_t looks,
                                           clock::time_point now, found_values& into) {
    const auto at = all_.find(number);
    if (at == all_.end()) return store_search::outcome::over;
    at->second.asked = now;
    const auto how = registry_.next(*at->second.search, looks, into);
    if (how == store_search::outcome::over) all_.erase(at);
    return how;
}

void guest_searches::make_room(clock::time_point now) {
    std::erase_if(all_, [&](const auto& each) { return now - each.second.asked > patience; });
    if (all_.size() < most) return;
    const auto oldest = std::min_element(
        all_.begin(), all_.end(),
        [](const auto& a, const auto& b) { return a.second.asked < b.second.asked; });
    all_.erase(oldest);
}

}  // namespace amalgam::detail
