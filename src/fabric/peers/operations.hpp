#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include <amalgam/fabric/completion.hpp>

#include "fabric/frames/chain.hpp"

namespace amalgam::detail {

struct peer_record;

/// State of a completion. Kept in the low bits of port_words[0], whose other bits point to the
/// peer's record; 0 means not pending.
///
///     kind      words 1, 2, 3
///     send      bytes, -, the transport's
///     receive   tag, address and length of the destination; linked in the peer's `matching`
///     placement   the same, while its message is being read; not linked
///     transfer  the rma_operation
///     library   the transport's: a put or get that its library carries out
///     piece     -, -, the transport's; a send of the port itself
///     ready     status, bytes, -; linked in the completion_queue
///     event     the same, but the port's own and not a user's operation
enum class op_kind : std::uintptr_t {
    none,
    send,
    receive,
    placement,
    transfer,
    piece,
    ready,
    event,
    library
};

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

/// The members that the port uses while an operation is pending.
struct op_links {
    static completion*& next(completion& op) noexcept { return op.port_next; }
    static completion*& previous(completion& op) noexcept { return op.port_previous; }
};
using op_list = chain<completion, op_links>;

/// Completions that are due, and the number still pending. The only place that ends a port's
/// operations, so exactly-once completion is enforced here.
class completion_queue {
public:
    /// Calls `on_first` with `context` when the queue of due completions becomes non-empty.
    explicit completion_queue(void (*on_first)(void*) noexcept = nullptr,
                              void* context = nullptr) noexcept
        : on_first_(on_first), context_(context) {}

    bool empty() const noexcept { return due_.empty(); }
    /// Operations posted as pending and not completed yet.
    std::size_t open() const noexcept { return open_; }

    /// Counts an operation as pending.
    void opened() noexcept { ++open_; }

    /// Undoes that, as if it had never been posted.
    void withdraw(completion& op) noexcept {
        op.port_words[0] = 0;
        --open_;
    }

    /// Ends `op` in the next run().
    void push(completion& op, status what, std::size_t bytes) noexcept {
        mark(op, op_kind::ready, nullptr);
        enqueue(op, what, bytes);
    }

    /// Ends `op` before `event` runs if that is due; else in the next run().
    void push_before(completion& event, completion& op, status what) noexcept {
        if (kind_of(event) != op_kind::event) return push(op, what, 0);
        mark(op, op_kind::ready, nullptr);
        set_end(op, what, 0);
        due_.insert_before(event, op);
    }

    /// Runs a completion of the port itself in the next run(), after those pushed before.
    void push_event(completion& event) noexcept {
        mark(event, op_kind::event, nullptr);
        enqueue(event, {}, 0);
    }

    /// Ends `op` now. It may be destroyed afterwards, and the user may have called the port.
    void finish(completion& op, status what, std::size_t bytes) noexcept {
        op.port_words[0] = 0;
        --open_;
        op.finish(what, what.ok() ? bytes : 0);
    }

    /// Ends at most `budget` due completions; returns how many.
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

    /// Ends all due completions with `what` in place of their own status.
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
static_assert(sizeof(std::uintptr_t) == 8, "a status must fit into a port word");

}  // namespace amalgam::detail
