#include "directory/membership/anti_entropy.hpp"

#include <utility>
#include <vector>

namespace amalgam::detail {

anti_entropy::anti_entropy(ring_runtime& runtime, membership_view& view, ring_peers& peers,
                           dissemination& news, probes& pings)
    : runtime_(runtime),
      view_(view),
      peers_(peers),
      news_(news),
      probes_(pings),
      compare_(runtime.on.procedure<in_ring::compare>(in_ring::compare_name)) {}

void anti_entropy::start() {
    runtime_.serve(*this, in_ring::compare_name, &anti_entropy::compared);
}

void anti_entropy::compare_with(std::uint64_t key) {
    const auto there = peers_.reach(key);
    if (!there) return;
    const auto theirs = compare_.on(*there)
                            .within(runtime_.options.answer_limit)
                            .try_call(view_.all(runtime_.now()));
    if (theirs) learn(*theirs);
}

ring_news anti_entropy::compared(ring_news theirs) {
    learn(theirs);
    return view_.all(runtime_.now());
}

void anti_entropy::learn(const ring_news& theirs) {
    ring_news believed{theirs.came, {}};
    std::vector<departure> doubted;
    view_.locked([&](const member& self, const member_table& others) {
        for (const departure& each : theirs.gone) {
            const member* const there = others.find(each.key);
            if (each.key == self.key) {
                believed.gone.push_back(each);
            } else if (there != nullptr && there->version <= each.version) {
                doubted.push_back(each);
            }
        }
    });
    bool probe = false;
    {
        const std::lock_guard one(lock_);
        for (const departure& each : doubted)
            said_gone_[each.key] = each.version;
        probe = !said_gone_.empty() && !std::exchange(probing_, true);
    }
    news_.learn(believed);
    if (probe) runtime_.run([this] { probe_departed(); });
}

void anti_entropy::probe_departed() {
    while (!runtime_.stopping.is_set()) {
        departure next;
        {
            const std::lock_guard one(lock_);
            if (said_gone_.empty()) {
                probing_ = false;
                return;
            }
            const auto first = said_gone_.begin();
            next = {first->first, first->second};
            said_gone_.erase(first);
        }
        const auto who = view_.find(next.key);
        if (!who || who->version > next.version) continue;
        if (probes_.is_gone(*who)) news_.learn({{}, {next}});
    }
}

}  // namespace amalgam::detail
