#include "directory/locations.hpp"

namespace amalgam::detail {

namespace {

using known = std::unordered_map<resource_id, peer>;

std::optional<peer> find_in(const known& those, resource_id which) {
    const auto at = those.find(which);
    if (at == those.end()) return std::nullopt;
    return at->second;
}

}  // namespace

std::optional<peer> locations::find(resource_id which) const {
    const std::lock_guard one(lock_);
    return find_in(resources_, which);
}

std::optional<peer> locations::find_context(resource_id context) const {
    const std::lock_guard one(lock_);
    return find_in(contexts_, context);
}

void locations::learn_context(resource_id context, const peer& by) {
    const std::lock_guard one(lock_);
    if (contexts_.size() == most) contexts_.clear();
    contexts_[context] = by;
}

void locations::learn(resource_id which, resource_id context) {
    const std::lock_guard one(lock_);
    const auto by = find_in(contexts_, context);
    if (!by) return;
    if (resources_.size() == most) resources_.clear();
    resources_[which] = *by;
}

void locations::learn_sender(resource_id which, const peer& by) {
    const std::lock_guard one(lock_);
    if (resources_.size() == most && !resources_.contains(which)) resources_.clear();
    resources_.try_emplace(which, by);
}

void locations::forget(resource_id which) {
    const std::lock_guard one(lock_);
    resources_.erase(which);
}

void locations::forget(const peer& gone) {
    const std::lock_guard one(lock_);
    const auto is_gone = [&](const auto& each) { return each.second == gone; };
    std::erase_if(contexts_, is_gone);
    std::erase_if(resources_, is_gone);
}

}  // namespace amalgam::detail
