#include "directory/membership/joining.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <amalgam/core/log.hpp>

#include "directory/membership/peers.hpp"
#include "directory/protocol/background.hpp"

namespace amalgam::detail {

joining::joining(ring_runtime& runtime, membership_view& view, dissemination& news, id_claims& ids)
    : runtime_(runtime),
      view_(view),
      news_(news),
      ids_(ids),
      members_(runtime.on.procedure<in_ring::members>(in_ring::members_name)),
      join_(runtime.on.procedure<in_ring::join>(in_ring::join_name)) {}

void joining::start() {
    runtime_.serve(*this, in_ring::members_name, &joining::asked_for_members);
    runtime_.serve(*this, in_ring::join_name, &joining::joined);
}

void joining::join() {
    for (const std::string& each : runtime_.options.others) {
        if (runtime_.stopping.is_set()) return;
        try {
            join(each);
        } catch (const error& why) {
            rethrow_if_canceled(why);
            log(log_level::warn, "directory", "cannot join another directory",
                {{"address", each}, {"why", why.what()}});
        }
    }
}

void joining::check_can_be_reached() const {
    const std::vector<std::string> addresses = view_.self().addresses;
    if (std::all_of(addresses.begin(), addresses.end(), is_local))
        throw error(errc::invalid,
                    "this directory listens at no address that another host can reach, expected "
                    "one; example: tcp://10.0.0.2:7100");
}

void joining::join(const std::string& address) {
    const peer there = runtime_.on.lookup(address);
    if (there.is_self()) return;
    if (!is_local(address)) check_can_be_reached();
    const std::chrono::milliseconds limit = runtime_.options.answer_limit;
    runtime_.lets_in->check_is(directory_role::member, there, limit);
    const bool had_others = view_.size() > 1;
    const ring_news fresh = news_.learn({members_.on(there).within(limit)(), {}});
    if (had_others && !fresh.empty()) news_.tell_all(fresh);
    // Servers that had removed this one accept it again.
    view_.locked([](member& self, const member_table&) { ++self.version; });
    ids_.claim_first();  // Join together with the claim, so that all are told once.
    join_.on(there).within(limit)(view_.self());
}

void joining::rejoin_lost() {
    for (const std::string& each : runtime_.options.others) {
        if (view_.has_address(each)) continue;
        try {
            join(each);
        } catch (const error& why) {  // Still not there.
            rethrow_if_canceled(why);
        }
    }
}

std::vector<member> joining::asked_for_members() {
    return view_.all(runtime_.now()).came;
}

void joining::joined(member who) {
    const ring_news fresh = news_.learn({{std::move(who)}, {}});
    if (!fresh.empty()) news_.tell_all(fresh);
}

}  // namespace amalgam::detail
