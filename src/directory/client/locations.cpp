#include "directory/client/locations.hpp"

#include <utility>

namespace amalgam {

std::size_t choose_way(traffic what, std::span<const peer_way> ways) {
    const capabilities& best = ways.front().can;
    const auto is_equal = [&](const peer_way& each) {
        return each.can.between_processes == best.between_processes &&
               each.can.between_hosts == best.between_hosts && each.can.rma == best.rma;
    };
    const bool has_second = ways.size() > 1 && is_equal(ways[1]);
    switch (what) {
        case traffic::small:
            return 0;
        case traffic::bulk:
            return has_second ? 1 : 0;
        case traffic::control:
            break;
    }
    const std::size_t unused = has_second ? 2 : 1;
    return unused < ways.size() ? unused : 0;
}

}  // namespace amalgam

namespace amalgam::detail {

// Not inlined: who calls it may go on on another thread, where this is another one.
[[gnu::noinline]] locations::found_by_thread& locations::found_last() noexcept {
    asm volatile("");
    static constinit thread_local found_by_thread last;
    return last;
}

std::uint64_t locations::next_number() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::optional<peer> locations::look_up(resource_id which, traffic what) const {
    const std::uint64_t before = changes();  // What changes from here on, makes it look again.
    const std::lock_guard one(lock_);
    const location* const known = found_now(which);
    if (known == nullptr) return std::nullopt;
    const peer& by = (*known)[what];
    found_last()[place_of(which, what)] = {number_, before, which, what, by};
    return by;
}

const locations::location* locations::found_now(resource_id which) const {
    const auto at = resources_.find(which);
    if (at == resources_.end()) return nullptr;
    return at->second.looked_up || !look_ups_.contains(which) ? &at->second : nullptr;
}

std::optional<peer> locations::begin_look_up(resource_id which, traffic what) {
    const std::lock_guard one(lock_);
    if (const location* const known = found_now(which)) return (*known)[what];
    ++look_ups_[which];
    return std::nullopt;
}

void locations::end_look_up(resource_id which) noexcept {
    const std::lock_guard one(lock_);
    const auto at = look_ups_.find(which);
    if (--at->second == 0) look_ups_.erase(at);
}

std::optional<peer> locations::find_shown(resource_id which, traffic what) const {
    const std::lock_guard one(lock_);
    const auto at = resources_.find(which);
    if (at == resources_.end()) return std::nullopt;
    return at->second[what];
}

std::size_t locations::resources() const {
    const std::lock_guard one(lock_);
    return resources_.size();
}

std::size_t locations::contexts() const {
    const std::lock_guard one(lock_);
    return contexts_.size();
}

bool locations::knows(resource_id which) const {
    const std::lock_guard one(lock_);
    return resources_.contains(which);
}

bool locations::uses(resource_id which, const peer& by) const {
    const std::lock_guard one(lock_);
    const auto at = resources_.find(which);
    return at != resources_.end() && at->second.use(by);
}

std::optional<peer> locations::find_looked_up(resource_id which) const {
    const std::lock_guard one(lock_);
    const auto at = resources_.find(which);
    if (at == resources_.end() || !at->second.looked_up) return std::nullopt;
    return at->second[traffic::small];
}

std::optional<peer> locations::find_context(resource_id context) const {
    const std::lock_guard one(lock_);
    const auto at = contexts_.find(context);
    if (at == contexts_.end()) return std::nullopt;
    return at->second[traffic::small];
}

void locations::learn_context(resource_id context, const ways_there& by) {
    const std::lock_guard one(lock_);
    changed();
    if (contexts_.size() >= most_ && !contexts_.contains(context)) contexts_.clear();
    contexts_[context] = by;
}

void locations::learn(resource_id which, resource_id context, bool for_sender) {
    const std::lock_guard one(lock_);
    changed();
    const auto by = contexts_.find(context);
    if (by == contexts_.end()) return;
    if (resources_.size() >= most_ && !resources_.contains(which)) {
        forget_senders();
        if (resources_.size() >= most_ && for_sender) return;
        if (resources_.size() >= most_) resources_.clear();
    }
    const auto [at, is_new] = resources_.try_emplace(which);
    location& known = at->second;
    if (known.is_sender) --senders_;
    known = {by->second, true, for_sender && (is_new || known.is_sender)};
    if (known.is_sender) ++senders_;
}

void locations::forget_senders() noexcept {
    if (std::exchange(senders_, 0) == 0) return;
    std::erase_if(resources_, [](const auto& each) { return each.second.is_sender; });
}

void locations::learn_sender(resource_id which, const ways_there& by) {
    const std::lock_guard one(lock_);
    changed();
    if (resources_.size() >= most_ && !resources_.contains(which)) forget_senders();
    if (resources_.size() >= most_) return;
    if (resources_.try_emplace(which, location{by, false, true}).second) ++senders_;
}

void locations::forget(resource_id which) {
    const std::lock_guard one(lock_);
    changed();
    const auto at = resources_.find(which);
    if (at == resources_.end()) return;
    if (at->second.is_sender) --senders_;
    resources_.erase(at);
}

void locations::forget(const peer& gone) {
    const std::lock_guard one(lock_);
    changed();
    const auto is_gone = [&](const auto& each) { return each.second.use(gone); };
    std::erase_if(contexts_, is_gone);
    std::erase_if(resources_, [&](const auto& each) {
        if (!is_gone(each)) return false;
        if (each.second.is_sender) --senders_;
        return true;
    });
}

}  // namespace amalgam::detail
