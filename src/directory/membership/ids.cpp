#include <algorithm>

#include <amalgam/core/log.hpp>

#include "directory/membership/ring.hpp"
#include "directory/resources/store.hpp"

namespace amalgam::detail {

// How a server obtains id ranges.

std::optional<std::uint32_t> directory_ring::some_free_range() {
    const std::lock_guard one(lock_);
    if (self_.ranges.size() >= most_ranges) return std::nullopt;
    for (int attempts = 1000; attempts > 0; --attempts) {
        const auto range = static_cast<std::uint32_t>(chance_.below(resource_store::ranges));
        if (others_.owner_of(range) != nullptr) continue;
        if (!contains(self_.ranges, range)) return range;
    }
    return std::nullopt;
}

bool directory_ring::is_contested(std::uint32_t range) const {
    const std::lock_guard one(lock_);
    const auto others = others_.claimants_of(range);
    return std::any_of(others.begin(), others.end(), [&](const member* other) {
        return other->key < self_.key || contains(other->settled, range);
    });
}

// Another server claims a range of this one without knowing this one.
void directory_ring::object(const member& to) {
    const auto there = reach(to.key);
    if (!there) return;
    ring_news news;
    {
        const std::lock_guard one(lock_);
        self_.settled = settled_;
        ++self_.version;
        news.came.push_back(self_);
    }
    (void)tell_.on(*there).within(options_.answer_limit).try_call(ring_part{to.key, 0, 1}, news);
}

// Another server owns a range of this one: they did not know each other when they obtained it.
bool directory_ring::share_range(const member& with) {
    constexpr std::size_t most = 16;  // More network partitions than this are a lie.
    if (with.key > self_.key) return false;
    bool some = false;
    for (const std::uint32_t range : settled_) {
        if (!contains(with.settled, range) || !contains(with.ranges, range)) continue;
        if (contains(shared_, range) || shared_.size() == most) continue;
        shared_.push_back(range);
        leaving_.push_back(range);
        some = true;
    }
    return some;
}

void directory_ring::want_range() {
    {
        const std::lock_guard one(lock_);
        if (std::exchange(claiming_, true)) return;
    }
    run([](directory_ring& me) { me.claim(); });
}

void directory_ring::claim() {
    for (;;) {
        const auto range = some_free_range();
        if (!range) {
            log(log_level::error, "directory", "out of ids");
            const std::lock_guard one(lock_);
            claiming_ = false;
            return;
        }
        {
            const std::lock_guard one(lock_);
            self_.ranges.push_back(*range);
            ++self_.version;
        }
        if (size() > 1) tell_all({{self()}, {}});
        if (settle(*range)) return;
    }
}

void directory_ring::claim_now(std::uint32_t range) {
    if (!settle(range)) claim();
}

// A published claim becomes ownership after a while. False: another server has the range.
bool directory_ring::hold(std::uint32_t range) {
    const bool stops = size() > 1 && stopping_.wait_for(options_.claim_time);
    const bool holds = !stops && !is_contested(range);
    if (holds) {
        const std::lock_guard one(lock_);
        settled_.push_back(range);
    } else {
        drop_claim(range);
    }
    return holds;
}

void directory_ring::drop_claim(std::uint32_t range) {
    const std::lock_guard one(lock_);
    std::erase(self_.ranges, range);
    ++self_.version;  // Servers that know of the claim learn this in a later comparison.
}

bool directory_ring::own_again(std::uint32_t range) {
    constexpr std::size_t most = 64;  // Limits what a stranger's claims can allocate.
    constexpr int rounds = 20;
    std::vector<member> owners;
    for (int round = 0;; ++round) {
        {
            const std::lock_guard one(lock_);
            if (contains(settled_, range)) return true;
            if (owned_again_ == most || self_.ranges.size() >= most_ranges) return false;
            if (!contains(self_.ranges, range)) {
                self_.ranges.push_back(range);
                ++self_.version;
                for (const member* each : others_.claimants_of(range))
                    owners.push_back(*each);
                break;
            }
        }
        // Another context of the same directory is already claiming it.
        if (round == rounds || stopping_.wait_for(options_.claim_time)) return false;
    }
    for (const member& each : owners) {
        if (is_gone(each)) {  // Most likely the previous directory on this host.
            remove({each.key, each.version});
            continue;
        }
        drop_claim(range);
        return false;
    }
    if (size() > 1) tell_all({{self()}, {}});
    if (!hold(range)) return false;
    {
        const std::lock_guard one(lock_);
        ++owned_again_;
    }
    if (const auto here = here_.lock()) here->own_range(range, false);
    return true;
}

// False: another server has it.
bool directory_ring::settle(std::uint32_t range) {
    if (!hold(range)) return stopping_.is_set();
    std::vector<std::uint32_t> left;
    {
        const std::lock_guard one(lock_);
        left.swap(leaving_);
        claiming_ = false;
    }
    if (const auto here = here_.lock()) {
        here->own_range(range, true);
        for (const std::uint32_t each : left)
            here->retire_range(each);
    }
    ready_.set();
    return true;
}

}  // namespace amalgam::detail
