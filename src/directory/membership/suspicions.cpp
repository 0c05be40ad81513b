#include "directory/membership/suspicions.hpp"

#include <algorithm>
#include <cmath>

#include "directory/limits.hpp"

namespace amalgam::detail {

bool suspicions::suspect(std::uint64_t who, std::uint32_t version, time_point now) {
    const auto [at, fresh] = all_.try_emplace(who);
    if (!fresh && at->second.version >= version) return false;
    at->second = {version, now, {}};
    return true;
}

void suspicions::confirm(std::uint64_t who, std::uint64_t by) {
    const auto at = all_.find(who);
    if (at != all_.end() && at->second.by.size() < limits::suspicion_confirmations)
        at->second.by.insert(by);
}

void suspicions::refute(std::uint64_t who, std::uint32_t version) noexcept {
    const auto at = all_.find(who);
    if (at != all_.end() && version > at->second.version) all_.erase(at);
}

std::size_t suspicions::confirmations(std::uint64_t who) const {
    const auto at = all_.find(who);
    return at == all_.end() ? 0 : at->second.by.size();
}

clock::duration suspicions::lasts(std::size_t confirmations, std::size_t others) const {
    const std::size_t wanted = std::min(limits::suspicion_confirmations, others);
    if (confirmations >= wanted) return least_;
    const double share = std::log(static_cast<double>(confirmations) + 1) /
                         std::log(static_cast<double>(wanted) + 1);
    return most_ - std::chrono::duration_cast<clock::duration>(share * (most_ - least_));
}

bool suspicions::is_over(std::uint64_t who, std::size_t others, time_point now) const {
    const auto at = all_.find(who);
    return at != all_.end() && now - at->second.since >= lasts(at->second.by.size(), others);
}

}  // namespace amalgam::detail
