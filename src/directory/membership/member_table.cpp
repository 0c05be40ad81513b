#include "directory/membership/member_table.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <amalgam/core/crc32c.hpp>
#include <amalgam/core/hash.hpp>

#include "directory/limits.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {

bool is_proper(const member& one) {
    const auto each_once = [](std::vector<std::uint32_t> ranges) {
        if (ranges.size() > limits::max_ranges) return false;
        std::sort(ranges.begin(), ranges.end());
        if (std::adjacent_find(ranges.begin(), ranges.end()) != ranges.end()) return false;
        return ranges.empty() || ranges.back() < limits::id_ranges;
    };
    return one.key != 0 && one.addresses.size() <= limits::max_addresses &&
           std::all_of(
               one.addresses.begin(), one.addresses.end(),
               [&](const std::string& each) { return each.size() <= limits::max_address_bytes; }) &&
           each_once(one.ranges) && each_once(one.settled);
}

std::uint64_t member_table::digest_of(const member& one) noexcept {
    std::uint64_t sum = mix(mix(one.key) + one.version);
    for (const std::string& each : one.addresses)
        sum = mix(sum + crc32c(std::as_bytes(std::span(each))));
    for (const auto* list : {&one.ranges, &one.settled})
        for (const std::uint32_t each : *list)
            sum = mix(sum + each);
    return sum;
}

void member_table::note_ranges(const member& before, const member& now, time_point when) {
    for (const std::uint32_t range : before.ranges) {
        if (contains(now.ranges, range)) continue;
        for (auto [at, end] = claims_.equal_range(range); at != end; ++at) {
            if (at->second.key != before.key) continue;
            claims_.erase(at);
            break;
        }
    }
    for (const std::uint32_t range : now.ranges)
        if (!contains(before.ranges, range)) claims_.emplace(range, claim{now.key, when});
}

member_table::learnt member_table::learn(const member& what, time_point when) {
    if (const auto gone = gone_.find(what.key); gone != gone_.end()) {
        if (what.version <= gone->second.version && when - gone->second.when < keep_)
            return learnt::nothing;
        gone_.erase(gone);
    }
    const auto known = all_.find(what.key);
    const std::size_t claimed = known != all_.end() ? known->second.ranges.size() : 0;
    if (known == all_.end() && all_.size() >= most_members_) return learnt::nothing;
    if (claims_.size() - claimed + what.ranges.size() > limits::max_claims || !is_proper(what))
        return learnt::nothing;
    const auto [at, fresh] = all_.try_emplace(what.key);
    member& one = at->second;
    if (!fresh) {
        if (what.version <= one.version) return learnt::nothing;
        digest_ -= digest_of(one);
    }
    note_ranges(one, what, when);
    one = what;
    digest_ += digest_of(what);
    if (fresh) ring_.insert(std::lower_bound(ring_.begin(), ring_.end(), what.key), what.key);
    return fresh ? learnt::first : learnt::newer;
}

bool member_table::remove(const departure& what, time_point when) {
    const auto at = all_.find(what.key);
    if (at == all_.end() || at->second.version > what.version) return false;
    note_ranges(at->second, {}, when);
    digest_ -= digest_of(at->second);
    if (gone_.size() >= most_members_) (void)departures(when);
    if (gone_.size() >= most_members_) gone_.erase(gone_.begin());
    gone_[what.key] = {what.version, when};
    ring_.erase(std::lower_bound(ring_.begin(), ring_.end(), what.key));
    all_.erase(at);
    return true;
}

std::vector<departure> member_table::departures(time_point now) {
    std::erase_if(gone_, [&](const auto& each) { return now - each.second.when >= keep_; });
    std::vector<departure> list;
    for (const auto& [key, how] : gone_)
        list.push_back({key, how.version});
    return list;
}

const member* member_table::find(std::uint64_t key) const {
    const auto at = all_.find(key);
    return at == all_.end() ? nullptr : &at->second;
}

const member* member_table::owner_of(std::uint32_t range) const {
    const auto [first, end] = claims_.equal_range(range);
    const auto earlier = [](const auto& a, const auto& b) {
        return std::pair(a.second.since, a.second.key) < std::pair(b.second.since, b.second.key);
    };
    return first == end ? nullptr : find(std::min_element(first, end, earlier)->second.key);
}

std::vector<const member*> member_table::claimants_of(std::uint32_t range) const {
    std::vector<const member*> those;
    for (auto [at, end] = claims_.equal_range(range); at != end; ++at)
        those.push_back(find(at->second.key));
    return those;
}

bool member_table::has_address(const std::string& address) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto& each) {
        const auto& those = each.second.addresses;
        return std::find(those.begin(), those.end(), address) != those.end();
    });
}

std::vector<member> member_table::all() const {
    std::vector<member> list;
    for (const std::uint64_t each : ring_)
        list.push_back(all_.at(each));
    return list;
}

const member* member_table::after(std::uint64_t key, std::size_t steps) const {
    if (steps > ring_.size()) return nullptr;
    const auto next = std::upper_bound(ring_.begin(), ring_.end(), key) - ring_.begin();
    const std::size_t at = static_cast<std::size_t>(next) + steps - 1;
    return find(ring_[at % ring_.size()]);
}

std::vector<delegation> member_table::split_around(std::uint64_t key, const ring_part& part,
                                                   std::size_t most) const {
    if (!part.holds(key)) return split(part, most);
    ring_part before = part, behind = part;
    before.end = key - part.from;
    behind.first = before.end + 1;
    std::vector<delegation> all;
    if (before.first != before.end) all = split(before, most);
    if (behind.first == behind.end) return all;
    for (delegation& each : split(behind, most))
        all.push_back(std::move(each));
    return all;
}

std::vector<delegation> member_table::split(const ring_part& part, std::size_t most) const {
    // Keys in ring order after part.from; those inside the part are a contiguous range.
    const auto start = std::upper_bound(ring_.begin(), ring_.end(), part.from) - ring_.begin();
    const auto key = [&](std::size_t i) {
        return ring_[(static_cast<std::size_t>(start) + i) % ring_.size()];
    };
    const auto first_from = [&](std::uint64_t distance) {
        std::size_t low = 0;
        for (std::size_t high = ring_.size(); low < high;) {
            const std::size_t middle = (low + high) / 2;
            // part.from itself comes last: its distance is the whole ring.
            const std::uint64_t here = key(middle) - part.from;
            if (here != 0 && here < distance) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    };
    const std::size_t begin = first_from(part.first);
    std::size_t end = part.end != 0 ? first_from(part.end) : ring_.size();
    if (end > begin && key(end - 1) == part.from) --end;
    const std::size_t inside = end - std::min(begin, end);
    std::vector<delegation> cuts(std::min(most, inside));
    for (std::size_t i = 0; i < cuts.size(); ++i) {
        const auto cut = [&](std::size_t which) { return begin + which * inside / cuts.size(); };
        delegation& one = cuts[i];
        one.who = key(cut(i));
        one.part.from = part.from;
        one.part.first = i == 0 ? part.first : key(cut(i)) - part.from;
        one.part.end = i + 1 == cuts.size() ? part.end : key(cut(i + 1)) - part.from;
    }
    return cuts;
}

}  // namespace amalgam::detail
