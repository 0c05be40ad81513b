#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <amalgam/core/buffer.hpp>
#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/mutex.hpp>

#include "flow/channel/wire.hpp"

namespace amalgam::detail {

/// Channel settings: the relevant part of run_options.
struct channel_limits {
    std::size_t batch_bytes;
    std::size_t window_bytes;
    /// A receiver with fewer items gets the next at once; 1: only with none.
    std::size_t starving_items = 1;
};

/// The sending end of one edge. Posts the node's batches to any number of receivers, each to the
/// one with the least pending work, within that receiver's window.
///
/// The node posts full batches. A partial one is posted when a receiver runs out of work: by the
/// node with its next item, or by the arrival of the last credit, so that nothing waits here while
/// the node is busy elsewhere.
/// Threads: the producer's part by the node; credit(), stop() and is_open() by anyone.
/// Failure: once stopped, the producer's part throws error{canceled}.
class sender final : public channel_out {
public:
    /// `replica` is this process's number in its group; `lost` is called with the reason if
    /// receiver i is unreachable.
    sender(engine& over, std::uint32_t edge, std::uint32_t replica, std::size_t receivers,
           channel_limits limits, std::function<void(std::size_t, const failure&)> lost);

    /// Sets the peer of receiver i. Call for all of them before the first item.
    void connect(std::size_t receiver, peer to);

    /// Receiver i has consumed that many bytes and items in total.
    void credit(std::size_t receiver, std::uint64_t consumed_bytes, std::uint64_t consumed_items);
    /// Whether losing receiver i would lose items.
    bool is_open(std::size_t receiver) const;
    /// Whether it has consumed everything.
    bool has_ended(std::size_t receiver) const;
    void stop() noexcept;

    void end() override;
    void wait_ended() override;
    void mark(std::uint64_t number) override;
    traffic traffic_so_far() const override;

private:
    struct link {
        peer to;
        std::uint64_t posted_batches = 0;
        std::uint64_t posted_items = 0;
        std::uint64_t posted_bytes = 0;
        std::uint64_t consumed_bytes = 0;
        std::uint64_t consumed_items = 0;
        bool open = true;
        bool done = false;          ///< It answered `end`: all was consumed.
        future<std::string> ended;  ///< The answer to `end`.

        std::uint64_t in_flight() const noexcept { return posted_bytes - consumed_bytes; }
        std::uint64_t items_before_it() const noexcept { return posted_items - consumed_items; }
    };

    void make_room(std::size_t bytes) override;
    void post_committed() override;

    link* least_busy() noexcept;
    bool is_starving(const link& one) const noexcept {
        return one.in_flight() == 0 || one.items_before_it() < limits_.starving_items;
    }
    bool has_unposted() const noexcept;
    std::uint64_t waiting_items() const noexcept;
    void post_to(link& receiver, std::unique_lock<mutex>& hold);
    void post_mark_to(link& receiver, std::uint64_t number, std::unique_lock<mutex>& hold);
    void post_if_starving(std::unique_lock<mutex>& hold);
    void post_all(std::unique_lock<mutex>& hold);
    void start_batch(std::size_t item_bytes, std::size_t needed);

    engine& over_;
    const std::uint32_t edge_;
    const std::uint32_t replica_;
    const channel_limits limits_;
    const std::function<void(std::size_t, const failure&)> lost_;
    procedure<wire::batch_signature> batch_;

    mutable mutex lock_;
    condition_variable changed_;  // Credit, or the end.
    std::vector<link> links_;
    std::size_t turn_ = 0;  // Round-robin among equally busy receivers.
    buffer_pool pool_;
    std::shared_ptr<buffer> batch_memory_;  // Shared with messages in flight.
    std::uint64_t most_waiting_ = 0;        // Items, over all receivers.
    std::uint64_t posted_ = 0;  // How much of this batch was posted: bytes and items, as
                                // committed_.
};

}  // namespace amalgam::detail
