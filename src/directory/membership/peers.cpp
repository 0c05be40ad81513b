#include "directory/membership/peers.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <amalgam/core/log.hpp>

namespace amalgam::detail {

ring_peers::ring_peers(ring_runtime& runtime, membership_view& view)
    : runtime_(runtime),
      view_(view),
      ping_(runtime.on.procedure<in_ring::ping>(in_ring::ping_name)) {}

std::optional<peer> ring_peers::reach(std::uint64_t key, std::chrono::nanoseconds within) {
    {
        const std::lock_guard one(lock_);
        if (const auto at = reached_.find(key); at != reached_.end()) return at->second;
    }
    auto who = view_.find(key);
    if (!who) return std::nullopt;
    std::vector<std::string> addresses = std::move(who->addresses);
    // A shared-memory name may exist on every host: it goes last.
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const std::string& each) { return !is_local(each); });
    for (const std::string& each : addresses) {
        const result<peer> found = runtime_.on.try_lookup(each);
        if (!found || found->is_self()) continue;
        try {
            runtime_.lets_in->check_is(directory_role::member, *found, within);
        } catch (const error& why) {
            log(log_level::info, "directory", "cannot ask another directory",
                {{"address", each}, {"why", why.what()}});
            continue;
        }
        const std::lock_guard one(lock_);
        if (view_.knows(key)) reached_[key] = *found;
        return *found;
    }
    return std::nullopt;
}

bool ring_peers::is_at(const peer& there, std::uint64_t key) {
    const auto answer = ping(there, runtime_.options.answer_limit).try_call(view_.key(), 0);
    return answer && answer->key == key;
}

void ring_peers::drop(std::uint64_t key) {
    const std::lock_guard one(lock_);
    reached_.erase(key);
}

void ring_peers::forget(const peer& lost) {
    const std::lock_guard one(lock_);
    std::erase_if(reached_, [&](const auto& each) { return each.second == lost; });
}

}  // namespace amalgam::detail
