#include "directory/client/locations.hpp"

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

std::optional<peer> locations::find(resource_id which, traffic what) const {
    const std::lock_guard one(lock_);
    const auto at = resources_.find(which);
    if (at == resources_.end()) return std::nullopt;
    return at->second[what];
}

bool locations::knows(resource_id which) const {
    const std::lock_guard one(lock_);
    return resources_.contains(which);
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

void locations::learn(resource_id which, resource_id context) {
    const std::lock_guard one(lock_);
    changed();
    const auto by = contexts_.find(context);
    if (by == contexts_.end()) return;
    if (resources_.size() >= most_ && !resources_.contains(which)) resources_.clear();
    resources_[which] = by->second;
}

void locations::learn_sender(resource_id which, const ways_there& by) {
    const std::lock_guard one(lock_);
    changed();
    if (resources_.size() >= most_ && !resources_.contains(which)) resources_.clear();
    resources_.try_emplace(which, by);
}

void locations::forget(resource_id which) {
    const std::lock_guard one(lock_);
    changed();
    resources_.erase(which);
}

void locations::forget(const peer& gone) {
    const std::lock_guard one(lock_);
    changed();
    const auto is_gone = [&](const auto& each) { return each.second.use(gone); };
    std::erase_if(contexts_, is_gone);
    std::erase_if(resources_, is_gone);
}

}  // namespace amalgam::detail
