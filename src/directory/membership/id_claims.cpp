#include "directory/membership/id_claims.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <amalgam/core/limited_log.hpp>

#include "directory/limits.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {

id_claims::id_claims(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                     dissemination& news, probes& pings)
    : runtime_(runtime), view_(view), peers_(peers), news_(news), probes_(pings) {}

std::optional<std::uint32_t> id_claims::some_free_range() {
    return view_.locked([&](const member& self,
                            const member_table& others) -> std::optional<std::uint32_t> {
        if (self.ranges.size() >= limits::max_ranges) return std::nullopt;
        for (int attempts = 1000; attempts > 0; --attempts) {
            const auto range = static_cast<std::uint32_t>(runtime_.random_below(limits::id_ranges));
            if (others.owner_of(range) != nullptr) continue;
            if (!contains(self.ranges, range)) return range;
        }
        return std::nullopt;
    });
}

bool id_claims::is_contested(std::uint32_t range) {
    return view_.locked([&](const member& self, const member_table& others) {
        const auto claimants = others.claimants_of(range);
        return std::any_of(claimants.begin(), claimants.end(), [&](const member* other) {
            return other->key < self.key || contains(other->settled, range);
        });
    });
}

void id_claims::hear(const std::vector<member>& others) {
    std::vector<member> claim_ours;
    bool has_to_leave = false;
    {
        const std::lock_guard one(lock_);
        for (const member& each : others) {
            if (each.key == view_.key()) continue;
            std::vector<std::uint32_t> both;
            std::copy_if(settled_.begin(), settled_.end(), std::back_inserter(both),
                         [&](std::uint32_t range) { return contains(each.ranges, range); });
            if (both.empty() || !is_proper(each)) continue;
            if (std::any_of(both.begin(), both.end(),
                            [&](std::uint32_t range) { return !contains(each.settled, range); }))
                claim_ours.push_back(each);
            has_to_leave = share(each) || has_to_leave;
        }
    }
    for (const member& each : claim_ours)
        runtime_.run_for_others([this, each] { object(each); });
    if (has_to_leave) want();
}

// Another server claims a range of this one without knowing this one.
void id_claims::object(const member& to) {
    const auto there = peers_.reach(to.key);
    if (!there) return;
    ring_news news;
    {
        // Locked until the view has them, so that a later version does not say less.
        const std::lock_guard one(lock_);
        news.came.push_back(view_.locked([&](member& self, const member_table&) {
            self.settled = settled_;
            ++self.version;
            return self;
        }));
    }
    news_.tell(*there, to.key, news);
}

// Another server owns a range of this one: they did not know each other when they obtained it.
// With the lock held.
bool id_claims::share(const member& with) {
    if (with.key > view_.key()) return false;
    bool some = false;
    for (const std::uint32_t range : settled_) {
        if (!contains(with.settled, range) || !contains(with.ranges, range)) continue;
        if (contains(shared_, range) || shared_.size() == limits::max_shared_ranges) continue;
        shared_.push_back(range);
        leaving_.push_back(range);
        some = true;
    }
    return some;
}

void id_claims::want() {
    {
        const std::lock_guard one(lock_);
        if (std::exchange(claiming_, true)) return;
    }
    runtime_.run([this] { claim(); });
}

void id_claims::claim_first() {
    {
        const std::lock_guard one(lock_);
        if (!view_.self().ranges.empty() || std::exchange(claiming_, true)) return;
    }
    const auto range = some_free_range();
    if (!range) return find_none();
    view_.locked([&](member& self, const member_table&) { self.ranges.push_back(*range); });
    runtime_.run([this, range = *range] { claim_now(range); });
}

void id_claims::claim() {
    for (;;) {
        const auto range = some_free_range();
        if (!range) return find_none();
        view_.locked([&](member& self, const member_table&) {
            self.ranges.push_back(*range);
            ++self.version;
        });
        if (view_.size() > 1) news_.tell_all({{view_.self()}, {}});
        if (settle(*range)) return;
    }
}

// Tried again when ids are next asked for.
void id_claims::find_none() {
    limited_log(log_level::error, "directory", "out of ids");
    const std::lock_guard one(lock_);
    claiming_ = false;
    found_none_ = true;
}

bool id_claims::wait_until_ready(std::chrono::nanoseconds at_most) {
    bool again = false;
    {
        const std::lock_guard one(lock_);
        again = std::exchange(found_none_, false) && settled_.empty();
    }
    if (again) want();
    return ready_.wait_for(at_most);
}

void id_claims::claim_now(std::uint32_t range) {
    if (!settle(range)) claim();
}

// A published claim becomes ownership after a while. False: another server has the range.
bool id_claims::hold(std::uint32_t range) {
    const bool stops = view_.size() > 1 && runtime_.stopping.wait_for(runtime_.options.claim_time);
    if (!stops) {
        // Locked from the look at the claims until it counts as owned: hear() objects to later
        // ones.
        const std::lock_guard one(lock_);
        if (!is_contested(range)) {
            settled_.push_back(range);
            return true;
        }
    }
    drop(range);
    return false;
}

void id_claims::drop(std::uint32_t range) {
    view_.locked([&](member& self, const member_table&) {
        std::erase(self.ranges, range);
        ++self.version;  // Servers that know of the claim learn this in a later comparison.
    });
}

bool id_claims::own_again(std::uint32_t range, bool for_reader) {
    std::vector<member> owners;
    // False: this server may claim no more. Empty: it claims that range already.
    const auto take = [&](member& self, const member_table& others) -> std::optional<bool> {
        if (self.ranges.size() >= limits::max_ranges) return false;
        if (contains(self.ranges, range)) return std::nullopt;
        self.ranges.push_back(range);
        ++self.version;
        for (const member* each : others.claimants_of(range))
            owners.push_back(*each);
        return true;
    };
    for (int round = 0;; ++round) {
        {
            const std::lock_guard one(lock_);
            if (contains(settled_, range)) return true;
            if (owned_again_ == limits::max_reclaimed_ranges) return false;
            if (for_reader && owned_for_readers_ >= limits::max_reclaimed_for_readers) return false;
            if (const auto claimed = view_.locked(take)) {
                if (!*claimed) return false;
                break;
            }
        }
        // Another context of the same directory is already claiming it.
        if (round == limits::claim_rounds ||
            runtime_.stopping.wait_for(runtime_.options.claim_time))
            return false;
    }
    for (const member& each : owners) {
        if (probes_.is_gone(each)) {  // Most likely the previous directory on this host.
            news_.remove({each.key, each.version});
            continue;
        }
        drop(range);
        return false;
    }
    if (view_.size() > 1) news_.tell_all({{view_.self()}, {}});
    if (!hold(range)) return false;
    {
        const std::lock_guard one(lock_);
        ++owned_again_;
        if (for_reader) ++owned_for_readers_;
    }
    if (const auto here = runtime_.here.lock()) here->own_range(range, false);
    return true;
}

// False: another server has it.
bool id_claims::settle(std::uint32_t range) {
    if (!hold(range)) return runtime_.stopping.is_set();
    std::vector<std::uint32_t> left;
    {
        const std::lock_guard one(lock_);
        left.swap(leaving_);
        claiming_ = false;
    }
    if (const auto here = runtime_.here.lock()) {
        here->own_range(range, true);
        for (const std::uint32_t each : left)
            here->retire_range(each);
    }
    ready_.set();
    return true;
}

}  // namespace amalgam::detail
