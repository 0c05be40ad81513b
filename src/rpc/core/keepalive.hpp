#pragma once

#include <cstddef>

#include <amalgam/core/counter.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/poller.hpp>
#include <amalgam/tasks/timer.hpp>

#include "rpc/call/caller.hpp"
#include "rpc/context/engine_context.hpp"
#include "rpc/memory/transfer_table.hpp"
#include "rpc/peers/known_peers.hpp"
#include "rpc/peers/outbox.hpp"
#include "rpc/peers/peer_addresses.hpp"
#include "rpc/serve/server.hpp"

namespace amalgam::detail {

/// Counters of a keepalive.
struct keepalive_counts {
    owned_counter pings;       ///< Sent.
    owned_counter unanswered;  ///< Peers disconnected because one was not answered.
};

/// Pings peers for which something waits, and disconnects those that do not answer: see
/// keepalive_options. A poller of the engine's stream, so that calls do not pay for it: it looks
/// between work units whether anything waits, and arms its timer only then.
///
/// Owner:   the engine, if the option is set. After close() it does nothing.
/// Threads: the engine's stream.
/// Failure: without memory for a ping, the peer is asked an interval later.
class keepalive final : public poller {
public:
    keepalive(engine_context& context, const keepalive_options& how, known_peers& peers,
              peer_addresses& addresses, caller& calls, server& serves, transfer_table& transfers,
              outbox& out, remote_procedures& procedures);
    ~keepalive() override;

    /// Ends the pings under way, and starts no more.
    void close() noexcept;
    const keepalive_counts& counts() const noexcept { return counts_; }

    std::size_t poll() noexcept override {
        look();
        return 0;
    }
    bool has_work() noexcept override { return must_arm(); }
    int wait_handle() const noexcept override { return -1; }
    bool prepare_to_sleep() noexcept override {
        look();
        return true;
    }

private:
    class ping;
    struct round_timer : timer {
        using timer::timer;
        keepalive* whose = nullptr;
    };

    void look() noexcept {
        if (must_arm()) arm_round();
    }
    bool must_arm() const noexcept { return !round_armed_ && !closed_ && anything_waits(); }
    bool anything_waits() const noexcept {
        return calls_.pending() != 0 || transfers_.pending() != 0 || out_.queued() != 0 ||
               server_.running() != 0;
    }
    static bool waits_for(const peer_state& there) noexcept;
    void arm_round() noexcept;
    void ask_all() noexcept;
    void ask(peer_state& there) noexcept;
    void give_up(peer_state& silent) noexcept;

    engine_context& context_;
    const keepalive_options how_;
    known_peers& peers_;
    peer_addresses& addresses_;
    caller& calls_;
    server& server_;
    transfer_table& transfers_;
    outbox& out_;
    const remote_procedure& what_;
    round_timer round_;
    ping* first_ = nullptr;  // Under way.
    bool round_armed_ = false;
    bool closed_ = false;
    keepalive_counts counts_;
};

}  // namespace amalgam::detail
