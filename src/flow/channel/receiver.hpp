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
/// Batches stay in their message: the deliverer waits until its batch was consumed.
/// Threads: next() by the consuming node; the rest by anyone.
/// Failure: once stopped, next() throws error{canceled}, deliver() and finish() error{closed}.
class receiver final : public channel_in {
public:
    /// Limits that each sender respects.
    struct limits {
        std::size_t window_bytes;
        /// A sender with fewer items here may send a batch beyond the window; 1: only with none.
        std::size_t starving_items = 1;
        /// Credit is returned for each consumed batch, not per quarter of the window.
        bool tells_at_once = false;
        /// Senders may mark their streams, for checkpoints.
        bool takes_marks = false;
    };
    /// `keeps`: batches are copied, and count as consumed at once; so there is no limit. For the
    /// feedback edge of a loop, where a waiting sender could wait for itself.
    receiver(std::size_t senders, limits most, bool keeps = false)
        : links_(senders), limits_(most), keeps_(keeps) {}
    ~receiver();

    bool next(batch& into) override;
    found try_next(batch& into) override;
    bool is_ready() const noexcept override;
    void release() noexcept override;
    std::uint64_t items_taken() const override;

    /// Hands over batch `number` of a sender and waits until it was consumed. Returns whether to
    /// return credit now, and sets `so_far` to that sender's total consumption.
    /// Failure: throws error{invalid} for an impossible sender or number, and past the limits.
    struct consumed {
        std::uint64_t bytes = 0;
        std::uint64_t items = 0;
    };
    bool deliver(std::size_t sender, std::uint64_t number, batch what, consumed& so_far);

    /// The sender ended after that many batches and items. Waits until all were consumed.
    /// Failure: throws error{invalid} if that is impossible.
    void finish(std::size_t sender, std::uint64_t batches, std::uint64_t items);

    /// Whether that sender may still send.
    bool is_open(std::size_t sender) const;
    void stop() noexcept;

private:
    /// A waiting batch, on the deliverer's stack.
    struct arrival {
        batch what;
        std::size_t sender = 0;
        arrival* next = nullptr;
        bool refused = false;
        bool is_bad = false;  ///< A mark that must not come now.
        waiter delivered_by;
    };
    /// A copied batch: nobody waits.
    struct kept_arrival : arrival {
        std::vector<std::byte> bytes;
    };
    /// Nothing in it can fail.
    struct arrival_queue {
        arrival* first = nullptr;
        arrival* last = nullptr;
        void push(arrival& one) noexcept {
            one.next = nullptr;
            (first == nullptr ? first : last->next) = &one;
            last = &one;
        }
        arrival* pop() noexcept {
            arrival* const one = first;
            if (one != nullptr) first = one->next;
            return one;
        }
    };
    struct link {
        std::uint64_t expected = 0;  ///< Number of the next batch in order.
        std::uint64_t waiting = 0;   ///< Delivered in order, not consumed.
        std::uint64_t consumed_items = 0;
        std::uint64_t consumed_bytes = 0;
        std::uint64_t kept_bytes = 0;  ///< Of copied batches; used instead of the others.
        std::uint64_t kept_items = 0;
        std::uint64_t told_bytes = 0;  ///< Credit returned so far.
        std::uint64_t held_bytes = 0;  ///< Delivered in any order, not consumed.
        std::uint64_t held_items = 0;
        std::uint64_t came = 0;        ///< Number of the latest batch by their order, + 1.
        std::uint64_t last_bytes = 0;  ///< Of that batch.
        std::uint64_t last_items = 0;
        std::map<std::uint64_t, arrival*> early;  ///< Arrived out of order.
        bool marked = false;                      ///< It has sent a mark; others have yet to.
        arrival_queue behind;                     ///< Arrived in order, behind that mark.
        bool ended = false;
        std::uint64_t batches = 0;  ///< Total; known once ended.
    };

    link& checked(std::size_t sender);
    void enqueue(arrival& one) noexcept;
    void take_mark(arrival& one) noexcept;
    void pass_mark_if_all_sent_it() noexcept;
    void count_consumed(const arrival& one) noexcept;
    void give_back_held() noexcept;
    void take_first(batch& into) noexcept;
    void told_consumer() noexcept;
    void over(arrival& one, bool refused) noexcept;
    // With the lock held:
    void accept(arrival& one, std::uint64_t number);
    void count_held(link& from, std::uint64_t number, const batch& what) const;
    bool keep(std::size_t sender, std::uint64_t number, batch what, consumed& so_far);
    bool all_ended() const noexcept;

    mutable mutex lock_;
    condition_variable changed_;   // For the consumer.
    condition_variable consumed_;  // For finish().
    std::vector<link> links_;
    const limits limits_;
    const bool keeps_;
    arrival_queue queue_;      // In order of consumption.
    arrival* held_ = nullptr;  // Held by the consumer, not in the queue.
    arrival mark_;             // In the queue where all senders have sent their marks.
    bool mark_waits_ = false;  // It is there.
    std::uint64_t mark_number_ = 0;
};

}  // namespace amalgam::detail
