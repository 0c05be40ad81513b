#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "directory/membership/peers.hpp"
#include "directory/membership/procedures.hpp"
#include "directory/membership/runtime.hpp"
#include "directory/membership/view.hpp"
#include "directory/protocol/broadcast_packet.hpp"

namespace amalgam::detail {

/// Asks all other servers at once, by broadcast; each answers by a call. Rests for a while when
/// broadcasts do not arrive.
///
/// Threads: any. Its lock guards the open questions, and whether it rests.
class broadcast_queries {
public:
    /// Takes first answers, as they arrive.
    using taker = std::function<void(std::vector<first_answer>&&)>;

    broadcast_queries(ring_runtime& runtime, membership_view& view, ring_peers& peers);
    void start();

    /// The first match that a server answers with. Empty if the broadcast failed; `none` if no
    /// answer came in time, which says nothing.
    std::optional<found_values> find(const attribute_view& query);
    /// Returns how many did not answer. Empty if the servers cannot be asked this way.
    std::optional<std::uint32_t> search(const attribute_view& query, const taker& take);
    /// Notes whether broadcasts missed something that a tree found.
    void note(bool missed);

    /// Another server's question.
    void hear(broadcast_packet&& asked);

private:
    struct question {
        bool all = false;
        std::vector<std::uint64_t> silent;  ///< Sorted.
        std::vector<first_answer> answers;
        event enough;
    };

    bool may_ask();
    /// Servers that did not answer in time are left in `silent`. Empty if the broadcast failed.
    std::optional<std::vector<first_answer>> ask(broadcast_packet::kind what,
                                                 const attribute_view& query,
                                                 std::vector<std::uint64_t>& silent);
    void answer(const broadcast_packet& asked);
    void answered(std::uint64_t number, first_answer answer);
    void rest();

    ring_runtime& runtime_;
    membership_view& view_;
    ring_peers& peers_;
    const procedure<in_ring::answer> answer_;
    const procedure<in_ring::search> search_;
    counter& packets_dropped_;  // Too many.
    std::atomic<int> hearing_{0};

    std::mutex lock_;  // Never held across a wait. Nothing else is locked meanwhile.
    std::unordered_map<std::uint64_t, std::shared_ptr<question>> questions_;  // By number.
    unsigned missed_ = 0;  // Consecutive missed broadcasts.
    clock::time_point rests_until_{};
};

}  // namespace amalgam::detail
