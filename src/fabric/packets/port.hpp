#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/fabric/packets.hpp>

#include "fabric/one_sided/one_sided.hpp"
#include "fabric/packets/connection.hpp"
#include "fabric/packets/introducing_carrier.hpp"
#include "fabric/packets/pool.hpp"
#include "fabric/port/framed_port.hpp"

namespace amalgam::detail {

/// A port over a packet carrier.
///
/// Threads: the port's thread.
class packet_port final : public framed_port, private packet_events, private one_sided_port {
public:
    /// `identities`, if any, is of the carrier.
    packet_port(std::unique_ptr<packet_carrier> carrier, const packet_port_traits& traits,
                const port_options& options, const link_identities* identities = nullptr);
    ~packet_port() override;

    std::string address() const override { return carrier_->address(); }
    std::string explain() const override { return carrier_->explain(); }
    identity self() const override {
        return identities_ == nullptr ? identity{} : identities_->self();
    }
    int wait_handle() const noexcept override { return carrier_->wait_handle(); }
    /// Refuses memory that cannot be accessed: packets are copied without guards, so a fault would
    /// hit the process.
    result<region> open_region(scatter segments, access rights) noexcept override;
    using framed_port::open_region;
    /// A block that is registered with the carrier once, if that registers memory.
    result<shared_block> allocate(std::size_t bytes) noexcept override;

    // ---- for its connections
    using framed_port::begin_placement;
    using framed_port::deliver;
    using framed_port::end_placement;
    using framed_port::sent;

    packet_pool& packets() noexcept { return packets_; }
    buffer_pool& memory() noexcept { return buffers(); }
    void has_work(packet_connection& who) noexcept;
    /// A refused sender may post again: do not sleep before it was told.
    void note_room() noexcept { has_new_room_ = true; }
    /// How many frames and completions may still be delivered in this round.
    std::size_t budget() const noexcept { return budget_; }
    void used_budget(std::size_t count) noexcept { budget_ -= std::min(count, budget_); }
    void link_lost(packet_connection& who, status why) noexcept;
    identity proved_by(const packet_link& link) const {
        return identities_ == nullptr ? identity{} : identities_->who(link);
    }
    /// A link that returned full has room again.
    void has_room(packet_connection& who) noexcept;

private:
    // ---- framed_port
    result<frame_link*> connect(std::string_view address) noexcept override;
    result<std::string> canonical(std::string_view address) const noexcept override;
    std::size_t move_frames(std::size_t budget) noexcept override;
    bool arm() noexcept override;
    void release(frame_link& link) noexcept override;
    void resume(frame_link& link) noexcept override;

    // ---- one-sided transfers, in transfers.cpp
    std::optional<status> direct_put(frame_link&, gather, const remote_key&,
                                     std::uint64_t offset) noexcept override;
    std::optional<status> direct_get(frame_link&, scatter, const remote_key&,
                                     std::uint64_t offset) noexcept override;
    std::optional<transfer_start> start_put(frame_link&, gather, const remote_key&,
                                            std::uint64_t offset, completion&) noexcept override;
    std::optional<transfer_start> start_get(frame_link&, scatter, const remote_key&,
                                            std::uint64_t offset, completion&) noexcept override;
    void cancel_transfer(completion&) noexcept override;
    std::uint64_t copied_bytes() const noexcept override {
        return one_sided_ == nullptr ? 0 : one_sided_->copied_bytes();
    }
    bool end_transfers(frame_link&, status) noexcept override;
    bool has_transfers(const frame_link&) const noexcept override;
    bool queue_put_notify(frame_link&, gather, const remote_key&, std::uint64_t offset,
                          std::uint64_t notice, completion&) noexcept override;
    delivery deliver_own(frame_link&, const frame_header&, const_bytes) noexcept override;
    void region_opened(const remote_key&, scatter) noexcept override;
    void region_closed(const remote_key&) noexcept override;
    const region_entry* region_of(const remote_key& key) noexcept override {
        return framed_port::region_of(key);
    }
    void transfer_over(completion& op, status how, std::size_t bytes) noexcept override {
        framed_port::transfer_over(op, how, bytes);
    }
    void go_on_by_packets(frame_link& link, const rma_rest& rest,
                          completion& op) noexcept override {
        framed_port::go_on_by_frames(link, rest, op);
    }
    void transfers_over(frame_link& link) noexcept override { framed_port::transfers_over(link); }
    one_sided_peer* one_sided_of(packet_connection& who) noexcept;
    bool transfers_at_once() const noexcept;
    template <typename Local>
    std::optional<transfer_start> begin_transfer(frame_link&, Local, const remote_key&,
                                                 std::uint64_t offset, completion&) noexcept;

    // ---- packet_events
    bool accepted(packet_link&, std::string address) noexcept override;
    void received(packet_link&, const_bytes) noexcept override;
    void room(packet_link&) noexcept override;
    void down(packet_link&, status why) noexcept override;
    void returned(packet& one) noexcept override { packets_.give_back(one); }
    void abandoned(packet& one) noexcept override { packets_.abandon(one); }
    void due() noexcept override { has_due_work_ = true; }

    void leave_to_parent() noexcept;
    packet_connection& make_connection(std::string address);
    void remove(packet_connection& who) noexcept;
    void work_off() noexcept;

    const link_identities* const identities_;
    packet_pool packets_;
    std::vector<std::unique_ptr<packet_connection>> connections_;
    std::vector<packet_connection*> with_work_;
    std::vector<packet_connection*> working_;  ///< Those of with_work_ being processed now.
    std::size_t budget_ = 0;
    bool has_new_room_ = false;
    bool has_due_work_ = false;
    completion unused_{[](completion&, status, std::size_t) noexcept {}};
    std::unique_ptr<packet_carrier> carrier_;    ///< Returns packets when destroyed.
    std::unique_ptr<one_sided_part> one_sided_;  ///< If the carrier has it.
};

}  // namespace amalgam::detail
