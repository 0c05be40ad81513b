#include "directory/membership/view.hpp"

#include <algorithm>
#include <utility>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

membership_view::membership_view(std::uint64_t key, std::vector<std::string> addresses,
                                 const ring_options& options)
    : key_(key),
      fanout_(options.fanout),
      others_(10 * options.period),
      suspected_(options.period * 3 / 4, options.period * 6) {
    self_.key = key;
    self_.version = 1;
    self_.addresses = std::move(addresses);
}

member membership_view::self() const {
    const std::lock_guard one(lock_);
    return self_;
}

std::size_t membership_view::size() const {
    const std::lock_guard one(lock_);
    return others_.size() + 1;
}

std::vector<std::uint64_t> membership_view::keys() const {
    const std::lock_guard one(lock_);
    return others_.keys();
}

bool membership_view::knows(std::uint64_t key) const {
    const std::lock_guard one(lock_);
    return others_.find(key) != nullptr;
}

std::optional<member> membership_view::find(std::uint64_t key) const {
    const std::lock_guard one(lock_);
    const member* const known = others_.find(key);
    return known != nullptr ? std::optional(*known) : std::nullopt;
}

bool membership_view::has_address(const std::string& address) const {
    const std::lock_guard one(lock_);
    return others_.has_address(address);
}

std::vector<std::uint64_t> membership_view::claimants_of(std::uint32_t range) const {
    const std::lock_guard one(lock_);
    std::vector<std::uint64_t> all;
    for (const member* each : others_.claimants_of(range))
        all.push_back(each->key);
    return all;
}

std::vector<member> membership_view::successors(std::size_t most) const {
    const std::lock_guard one(lock_);
    std::vector<member> next;
    for (std::size_t i = 1; i <= std::min(most, others_.size()); ++i)
        next.push_back(*others_.after(key_, i));
    return next;
}

std::uint64_t membership_view::digest() const {
    const std::lock_guard one(lock_);
    return others_.digest() + member_table::digest_of(self_);
}

ring_news membership_view::all(time_point now) {
    const std::lock_guard one(lock_);
    ring_news known{others_.all(), others_.departures(now)};
    known.came.push_back(self_);
    return known;
}

void membership_view::check_is_in(const ring_part& part) const {
    if (part.holds(key_)) return;
    throw error(errc::not_found,
                "this directory is not in that part of the ring; the directory that was at this "
                "address is gone");
}

std::vector<delegation> membership_view::split(const ring_part& part, std::uint64_t without) const {
    const std::lock_guard one(lock_);
    return others_.split_around(without, part, fanout_);
}

membership_view::learnt membership_view::learn(const ring_news& news, time_point now) {
    learnt all;
    const std::lock_guard one(lock_);
    for (const member& each : news.came) {
        if (each.key == key_) {
            all.was_wrong = (each != self_ && contradict(each.version)) || all.was_wrong;
            continue;
        }
        if (!is_proper(each) || others_.learn(each, now) == member_table::learnt::nothing) continue;
        suspected_.refute(each.key, each.version);
        all.fresh.came.push_back(each);
    }
    for (const departure& each : news.gone) {
        if (each.key == key_) {
            if (each.version > self_.version) (void)contradict(each.version);
            all.was_wrong = true;
        }
        if (!others_.remove(each, now)) continue;
        suspected_.clear(each.key);
        all.fresh.gone.push_back(each);
    }
    return all;
}

// Only this server sets its version. A false claim about it stands until this server publishes a
// higher version. False: this server is past that version.
bool membership_view::contradict(std::uint32_t version) {
    if (version < self_.version || version >= ~0u - 1) return false;
    self_.version = version + 1;
    return true;
}

bool membership_view::suspects(std::uint64_t key) const {
    const std::lock_guard one(lock_);
    return suspected_.holds(key);
}

std::vector<std::uint64_t> membership_view::trusted(std::uint64_t without) const {
    const std::lock_guard one(lock_);
    std::vector<std::uint64_t> all = others_.keys();
    std::erase_if(all,
                  [&](std::uint64_t each) { return each == without || suspected_.holds(each); });
    return all;
}

std::optional<membership_view::suspicion> membership_view::suspect(
    const member& who, const std::vector<std::uint64_t>& by, time_point now) {
    const std::lock_guard one(lock_);
    const member* const known = others_.find(who.key);
    if (known == nullptr || known->version != who.version) return std::nullopt;
    suspicion what;
    what.fresh = suspected_.suspect(who.key, who.version, now);
    const std::size_t others = others_.size() - std::min(others_.size(), suspected_.size());
    for (const std::uint64_t each : by)
        suspected_.confirm(who.key, each);
    what.over = suspected_.is_over(who.key, others, now);
    what.confirmed = others == 0 || suspected_.confirmations(who.key) != 0;
    return what;
}

void membership_view::trust(std::uint64_t key) {
    const std::lock_guard one(lock_);
    suspected_.clear(key);
}

}  // namespace amalgam::detail
