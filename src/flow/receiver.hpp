#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <amalgam/flow/detail/channel.hpp>
#include <amalgam/tasks/condition_variable.hpp>
#include <amalgam/tasks/mutex.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// The receiving end of one edge: takes batches from any number of senders, keeps each sender's
/// order, and ends when all of them have.
///
/// Batches stay in the message they came in: whoever delivers one waits until it was consumed.
/// Threads: next() by the consuming node; the rest by anyone.
/// Failure: once stopped, next() throws error{canceled}, deliver() and finish() error{closed}.
class receiver final : public channel_in {
public:
    /// A sender is told what was consumed at the latest after a quarter of `window_bytes`.
    /// `keeps`: batches are copied, and count as consumed for their senders at once. For the way
    /// back in a loop, where a sender that waited could wait for itself.
    receiver(std::size_t senders, std::size_t window_bytes, bool keeps = false)
        : links_(senders), tell_after_bytes_(window_bytes / 4), keeps_(keeps) {}
    ~receiver();

    bool next(batch& into) override;
    found try_next(batch& into) override;
    bool is_ready() const noexcept override;
    void release() noexcept override;
    std::uint64_t items_taken() const override;

    /// Hands over batch `number` of a sender and waits until it was consumed. Returns whether
    /// the sender should be told now, and sets `so_far` to all that was consumed of it.
    /// Failure: throws error{invalid} for a sender or number there cannot be.
    struct consumed {
        std::uint64_t bytes = 0;
        std::uint64_t items = 0;
    };
    bool deliver(std::size_t sender, std::uint64_t number, batch what, consumed& so_far);

    /// The sender has ended after that many batches and items. Waits until all were consumed.
    void finish(std::size_t sender, std::uint64_t batches, std::uint64_t items);

    /// Whether something may still come from that sender.
    bool is_open(std::size_t sender) const;
    void stop() noexcept;

private:
    /// A batch that waits, on the stack of who delivered it.
    struct arrival {
        batch what;
        std::size_t sender = 0;
        arrival* next = nullptr;
        bool refused = false;
        waiter delivered_by;
    };
    /// One that was copied: nobody waits.
    struct kept_arrival : arrival {
        std::vector<std::byte> bytes;
    };
    struct link {
        std::uint64_t expected = 0;  ///< The number of the next batch in order.
        std::uint64_t waiting = 0;   ///< Delivered in order, not consumed.
        std::uint64_t consumed_items = 0;
        std::uint64_t consumed_bytes = 0;
        std::uint64_t kept_bytes = 0;  ///< Of those that were copied; counts instead of the others.
        std::uint64_t kept_items = 0;
        std::uint64_t told_bytes = 0;             ///< What the sender knows of them.
        std::map<std::uint64_t, arrival*> early;  ///< Overtook others on the way.
        bool ended = false;
        std::uint64_t batches = 0;  ///< In all; known once ended.
    };

    link& checked(std::size_t sender);
    void enqueue(arrival& one);
    void give_back_held() noexcept;
    void take_first(batch& into) noexcept;
    void told_consumer() noexcept;
    void over(arrival& one, bool refused) noexcept;
    // With the lock held:
    void accept(arrival& one, std::uint64_t number);
    bool keep(std::size_t sender, std::uint64_t number, batch what, consumed& so_far);
    bool all_ended() const noexcept;

    mutable mutex lock_;
    condition_variable changed_;   // For the consumer.
    condition_variable consumed_;  // For finish().
    std::vector<link> links_;
    const std::size_t tell_after_bytes_;
    const bool keeps_;
    arrival* first_ = nullptr;  // In the order they will be consumed.
    arrival* last_ = nullptr;
    arrival* held_ = nullptr;  // The consumer's, outside of the queue.
};

}  // namespace amalgam::detail
