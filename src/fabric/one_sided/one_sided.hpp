#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <amalgam/fabric/one_sided.hpp>
#include <amalgam/fabric/packets.hpp>

#include "fabric/one_sided/exposures.hpp"
#include "fabric/one_sided/local_memory.hpp"
#include "fabric/one_sided/peer_keys.hpp"
#include "fabric/one_sided/transfers.hpp"

namespace amalgam::detail {

/// What a port with such transfers implements.
class one_sided_port {
public:
    virtual const region_entry* region_of(const remote_key&) noexcept = 0;
    virtual void transfer_over(completion&, status, std::size_t bytes) noexcept = 0;
    virtual void go_on_by_packets(frame_link&, const rma_rest&, completion&) noexcept = 0;
    /// The link of a peer that is down may be released.
    virtual void transfers_over(frame_link&) noexcept = 0;

protected:
    ~one_sided_port() = default;
};

/// All of a port's one-sided transfers: its regions as peers see them, peers' regions, and what is
/// in flight.
///
/// Threads: the port's thread, except allocate().
class one_sided_part final : private one_sided_home {
public:
    /// Failure: throws std::bad_alloc.
    one_sided_part(one_sided_carrier& carrier, one_sided_port& port,
                   std::chrono::milliseconds silence_limit);
    /// Precondition: drop() ran.
    ~one_sided_part();

    /// nullptr: out of memory.
    one_sided_peer* add(frame_link&, packet_link&) noexcept;
    /// The link goes. Precondition: down() returned true, or transfers_over() ran.
    void remove(one_sided_peer&) noexcept;

    direct_transfers& transfers() noexcept { return transfers_; }
    const direct_transfers& transfers() const noexcept { return transfers_; }
    delivery deliver(one_sided_peer&, const frame_header&, const_bytes payload) noexcept;
    /// The link has room.
    void writable(one_sided_peer& peer) noexcept {
        exposures_.pump(peer);
        transfers_.has_room();
    }
    /// As framed_port::direct_down().
    bool down(one_sided_peer&, status why) noexcept;

    void region_opened(const remote_key&, scatter segments) noexcept;
    void region_closed(const remote_key&) noexcept;
    result<shared_block> allocate(std::size_t bytes) noexcept { return memory_.allocate(bytes); }
    bool registers_memory() const noexcept { return facts_.registers_memory; }
    bool is_synchronous() const noexcept { return facts_.is_synchronous; }
    /// Any thread.
    std::uint64_t copied_bytes() const noexcept { return carrier_.copied_bytes(); }

    void progress() noexcept;
    /// Ends what a carrier has not let go of within the silence limit. Call it after the carrier's
    /// progress(), in which it may still let go.
    void look_at_limits() noexcept;
    /// False: progress() has work.
    bool may_sleep() const noexcept { return parting_ == 0 && transfers_.may_sleep(); }
    /// The port ends: ends every operation, after at most `patience` of `progress`.
    void end(const std::function<void()>& progress, std::chrono::milliseconds patience) noexcept;
    /// Then, once all links are shut: nobody uses memory or keys of ours any more.
    void drop() noexcept;

private:
    const region_entry* region_of(const remote_key& key) noexcept override {
        return port_.region_of(key);
    }
    void transfer_over(completion& op, status how, std::size_t bytes) noexcept override {
        port_.transfer_over(op, how, bytes);
    }
    void go_on_by_packets(one_sided_peer& peer, const rma_rest& rest,
                          completion& op) noexcept override {
        port_.go_on_by_packets(peer.link, rest, op);
    }
    void transfers_over(one_sided_peer&) noexcept override;
    void stop_waiting(one_sided_peer&) noexcept;
    void give_up(one_sided_peer&) noexcept;
    void destroy(one_sided_peer&) noexcept;

    one_sided_port& port_;
    one_sided_carrier& carrier_;
    const one_sided_facts facts_;
    const std::chrono::milliseconds silence_limit_;
    std::vector<std::unique_ptr<one_sided_peer>> all_;
    std::vector<one_sided_peer*> peers_;  ///< Those that have a link.
    std::size_t parting_ = 0;             ///< Those that are awaited.
    peer_keys keys_;
    local_memory memory_;
    exposures exposures_;
    direct_transfers transfers_;
};

}  // namespace amalgam::detail
