#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <amalgam/fabric/completion.hpp>

#include "fabric/chain.hpp"

namespace amalgam::detail {

struct peer_record;

/// What a pending completion stands for. Kept in the low bits of port_words[0], whose other bits
/// are the peer's record; 0 means not pending.
///
///     kind      words 1, 2, 3
///     send      bytes, -, the transport's
///     receive   tag, address and length of the destination; linked in the peer's `matching`
///     landing   the same, while its message is being read; linked nowhere
///     transfer  the rma_operation
///     piece     -, -, the transport's; a send of the port's own
///     ready     status, bytes, -; linked in the completion_queue
///     event     the same, but it is the port's own, and no operation of the user
enum class op_kind : std::uintptr_t { none, send, receive, landing, transfer, piece, ready, event };

inline constexpr std::uintptr_t op_kind_mask = 15;

inline op_kind kind_of(const completion& op) noexcept {
    return static_cast<op_kind>(op.port_words[0] & op_kind_mask);
}
inline peer_record* peer_of(const completion& op) noexcept {
    return reinterpret_cast<peer_record*>(op.port_words[0] & ~op_kind_mask);
}
inline void mark(completion& op, op_kind kind, peer_record* peer) noexcept {
    op.port_words[0] = reinterpret_cast<std::uintptr_t>(peer) | static_cast<std::uintptr_t>(kind);
}

/// The members that belong to the port while an operation is pending.
struct op_links {
    static completion*& next(completion& op) noexcept { return op.port_next; }
    static completion*& previous(completion& op) noexcept { return op.port_previous; }
};
using op_list = chain<completion, op_links>;

/// Completions that are due, and the count of those still pending. The one place that ends the
/// operations of a port, and so where "exactly once" is kept.
class completion_queue {
public:
    /// `on_first` is called with `context` when something is due and nothing was before.
    explicit completion_queue(void (*on_first)(void*) noexcept = nullptr,
                              void* context = nullptr) noexcept
        : on_first_(on_first), context_(context) {}

    bool empty() const noexcept { return due_.empty(); }
    /// Operations that were pending and have not completed.
    std::size_t open() const noexcept { return open_; }

    /// The operation is pending from now on.
    void opened() noexcept { ++open_; }

    /// It is not, after all: as if it had never been posted.
    void withdraw(completion& op) noexcept {
        op.port_words[0] = 0;
        --open_;
    }

    /// Ends `op` in the next run().
    void push(completion& op, status what, std::size_t bytes) noexcept {
        mark(op, op_kind::ready, nullptr);
        enqueue(op, what, bytes);
    }

    /// Ends `op` before `event` runs, if that is due; else in the next run().
    void push_before(completion& event, completion& op, status what) noexcept {
        if (kind_of(event) != op_kind::event) return push(op, what, 0);
        mark(op, op_kind::ready, nullptr);
        set_end(op, what, 0);
        due_.insert_before(event, op);
    }

    /// Runs a completion of the port's own in the next run(), after what was pushed before.
    void push_event(completion& event) noexcept {
        mark(event, op_kind::event, nullptr);
        enqueue(event, {}, 0);
    }

    /// Ends `op` now. It may be gone afterwards, and the user may have called the port.
    void finish(completion& op, status what, std::size_t bytes) noexcept {
        op.port_words[0] = 0;
        --open_;
        op.finish(what, what.ok() ? bytes : 0);
    }

    /// Ends at most `budget` of those that are due; returns how many.
    std::size_t run(std::size_t budget) noexcept {
        std::size_t ran = 0;
        for (; ran < budget && !due_.empty(); ++ran) {
            completion& op = *due_.take_first();
            const auto what = std::bit_cast<status>(std::uint64_t{op.port_words[1]});
            if (kind_of(op) == op_kind::event)
                run_event(op);
            else
                finish(op, what, op.port_words[2]);
        }
        return ran;
    }

    /// Ends all that are due with `what` instead of what they were due with.
    void run_all_with(status what) noexcept {
        while (completion* op = due_.take_first()) {
            if (kind_of(*op) == op_kind::event)
                run_event(*op);
            else
                finish(*op, what, 0);
        }
    }

private:
    static void set_end(completion& op, status what, std::size_t bytes) noexcept {
        op.port_words[1] = static_cast<std::uintptr_t>(std::bit_cast<std::uint64_t>(what));
        op.port_words[2] = bytes;
    }
    static void run_event(completion& event) noexcept {
        event.port_words[0] = 0;
        event.finish({}, 0);
    }
    void enqueue(completion& op, status what, std::size_t bytes) noexcept {
        set_end(op, what, bytes);
        const bool first = due_.empty();
        due_.append(op);
        if (first && on_first_ != nullptr) on_first_(context_);
    }

    void (*on_first_)(void*) noexcept;
    void* context_;
    op_list due_;
    std::size_t open_ = 0;
};
static_assert(sizeof(std::uintptr_t) == 8, "a status is kept in a port word");

}  // namespace amalgam::detail
