#include "directory/server/ring.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/signed_broadcast.hpp>

namespace amalgam::detail {

directory_ring::directory_ring(engine& on, const ring_options& options,
                               std::shared_ptr<const role_policy> lets_in,
                               std::weak_ptr<ring_user> here)
    : runtime_(on, options, std::move(lets_in), std::move(here)),
      view_(runtime_.random() | 1, on.addresses(), options),
      peers_(runtime_, view_),
      news_(runtime_, view_, peers_,
            {.heard = [this](const std::vector<member>& members) { ids_.hear(members); },
             .met = [this] { detector_.start(); }}),
      probes_(runtime_, view_, peers_, news_,
              [this](std::uint64_t key) { comparing_.compare_with(key); }),
      comparing_(runtime_, view_, peers_, news_, probes_),
      ids_(runtime_, view_, peers_, news_, probes_),
      joining_(runtime_, view_, news_, ids_),
      detector_(runtime_, view_, news_, probes_, joining_),
      discovery_(runtime_, view_, joining_),
      broadcasts_(runtime_, view_, peers_),
      queries_(runtime_, view_, peers_, broadcasts_),
      packets_refused_(on.counters().get("directory.packets_refused")),
      packets_old_(on.counters().get("directory.packets_old")),
      packets_dropped_(on.counters().get("directory.packets_dropped")) {
    if (options.fanout == 0)
        throw error(errc::invalid,
                    "ring_options::fanout is 0, so no server would be asked, expected 1 or more; "
                    "example: 8");
    sign_medium();
}

void directory_ring::start() {
    const ring_options& options = runtime_.options;
    runtime_.start(weak_from_this());
    joining_.start();
    news_.start();
    probes_.start();
    comparing_.start();
    queries_.start();
    discovery_.start();
    broadcasts_.start();
    if (options.medium) {
        joining_.check_can_be_reached();
        const auto take = [self = weak_from_this()](const_bytes bytes, const identity& signer) {
            if (const auto me = self.lock()) me->take_packet(bytes, signer);
        };
        if (options.trust != nullptr)
            listen_to_signed(*options.medium, take);
        else
            options.medium->listen([take](const_bytes bytes) { take(bytes, {}); });
        discovery_.start_announcing();
    }
    runtime_.run([this] {
        joining_.join();
        // Meet servers heard now before claiming ids they may own.
        if (runtime_.options.medium && view_.size() == 1)
            (void)news_.wait_until_met(runtime_.options.claim_time);
        if (view_.self().ranges.empty()) ids_.want();
    });
    if (!options.others.empty()) detector_.start();
}

void directory_ring::sign_medium() {
    ring_options& options = runtime_.options;
    if (!options.medium) return;
    const std::vector<std::string> addresses = runtime_.on.addresses();
    const auto encrypted =
        std::find_if(addresses.begin(), addresses.end(), [](const std::string& each) {
            const auto here = parse_uri(each);
            return here && is_encrypted(*here);
        });
    if (options.trust == nullptr && encrypted != addresses.end())
        throw error(errc::invalid,
                    fmt::format("this directory listens at {}, but its broadcasts would not be "
                                "signed; expected ring_options::trust; example: "
                                "credentials::from_folder(\"node7\")",
                                *encrypted));
    if (options.trust == nullptr) return;
    const auto takes = [lets_in = runtime_.lets_in](const identity& who) {
        const auto& list = lets_in->list_of(directory_role::member);
        return !list || list->allows(who);
    };
    const auto count = [this](broadcast_refusal why) {
        const bool is_old = why == broadcast_refusal::stale || why == broadcast_refusal::repeated;
        (is_old ? packets_old_ : packets_refused_).add();
    };
    options.medium =
        sign_broadcasts(options.medium, options.trust, {.takes = takes, .on_refused = count});
}

// On the medium's thread.
void directory_ring::take_packet(const_bytes bytes, const identity& signer) noexcept {
    try {
        auto packet = parse_packet(bytes);
        if (!packet) return packets_refused_.add();
        if (packet->from == view_.key()) return;
        packet->signer = signer;
        if (packet->what == broadcast_packet::kind::here) {
            discovery_.hear(std::move(*packet));
        } else {
            broadcasts_.hear(std::move(*packet));
        }
    } catch (const std::exception&) {
        packets_dropped_.add();  // Out of memory.
    }
}

}  // namespace amalgam::detail
