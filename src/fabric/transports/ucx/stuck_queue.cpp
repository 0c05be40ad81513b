// How a ucx_carrier notices what UCX does not tell: messages that it dropped, a queue that is
// stuck.
#include <algorithm>
#include <cerrno>

#include <amalgam/core/log.hpp>

#include "fabric/transports/ucx/carrier.hpp"

namespace amalgam::detail {
namespace {

// For shared memory: if an unfinished entry blocks the queue this long after a peer was lost,
// nothing will arrive any more.
constexpr std::chrono::seconds stuck_after{1};
constexpr std::chrono::milliseconds between_looks{100};

}  // namespace

/// An upcall may release any of them.
template <typename Which>
void ucx_carrier::end_all(const Which& which, status why) noexcept {
    const auto is_one = [&](ucx_link* each) { return which(*each); };
    for (auto at = all_.begin();
         (at = std::find_if(all_.begin(), all_.end(), is_one)) != all_.end();)
        lost(**at, why);
}

/// UCX drops its own messages, by which two ends connect, if it has no memory to read them. It
/// does not ask for them again.
void ucx_carrier::end_unfinished() noexcept {
    if (has_room_for_connection()) return;
    for (const auto& each : ends_)
        if (!each->link->heard_ || each->link->lent_ > 0)
            on_failure(each.get(), each->endpoint, UCS_ERR_NO_MEMORY);
    end_all([](ucx_link& one) { return one.waits_for_packet(); }, {errc::no_memory, ENOMEM});
}

/// Such a message may have been dropped at the other end, which then knows of nothing to say.
void ucx_carrier::end_unanswered() noexcept {
    const clock::time_point now = clock::steady().now();
    if (now - last_look_ < between_looks) return;
    // Time in which the program made no progress does not count: an answer may wait to be read.
    const clock::duration passed = std::min<clock::duration>(now - last_look_, 2 * between_looks);
    last_look_ = now;
    awaits_answers_ = false;
    for (const auto& each : ends_) {
        ucx_link& link = *each->link;
        if (link.heard_) continue;
        awaits_answers_ = true;
        if (link.lent_ == 0) continue;  // We wait for nothing.
        link.unanswered_ += passed;
        if (std::min(link.unanswered_, now - link.opened_at_) >= with_.silence_limit)
            on_failure(each.get(), each->endpoint, UCS_ERR_TIMED_OUT);
    }
}

/// A killed process's half-written cell may stay in the queue and block packets behind it. So does
/// that of a process which had no memory to attach ours: UCX takes the cell before it attaches.
void ucx_carrier::look_for_stuck_queue() noexcept {
    if (came_ > 0) {  // As it does not in a stuck queue.
        suspects_queue_ = suspects_queue_ && !ends_.empty();
        stuck_since_ = {};
        return;
    }
    const clock::time_point now = clock::steady().now();
    // Without any endpoint UCX may look at no queue and say that it is empty.
    if (ends_.empty() && with_.between_hosts) return end_waiting(now);
    if (ucp_worker_arm(worker_->get()) == UCS_OK) {  // The queue is empty, so not stuck.
        suspects_queue_ = false;
        doubts_queue_ = false;
        stuck_since_ = {};
        events().due();
        return;
    }
    // UCX claims work also while a peer reads none of the packets that it holds for it.
    const bool may_wait_for_peer =
        !suspects_queue_ && std::any_of(all_.begin(), all_.end(), [](const ucx_link* one) {
            return one->heard_ && one->lent_ > 0;
        });
    if (stuck_since_ == clock::time_point{} || may_wait_for_peer) stuck_since_ = now;
    const clock::duration limit = suspects_queue_ ? stuck_after : with_.silence_limit;
    if (now - stuck_since_ >= limit) give_up();
}

/// Ends connections whose first packet does not come, as it may never be read.
void ucx_carrier::end_waiting(clock::time_point now) noexcept {
    doubts_queue_ = false;
    if (!suspects_queue_) return;
    const auto waited_long = [&](ucx_link& one) {
        if (!one.waits_for_packet()) return false;
        if (one.waits_since_ == clock::time_point{}) one.waits_since_ = now;
        return now - one.waits_since_ >= with_.silence_limit;
    };
    end_all(waited_long, {errc::disconnected, ETIMEDOUT});
}

void ucx_carrier::give_up() noexcept {
    suspects_queue_ = false;
    doubts_queue_ = false;
    is_stuck_ = true;
    log(log_level::error, "ucx",
        "a peer was killed, or had no memory or file descriptors (ulimit -v, ulimit -n), while it "
        "wrote into this port's shared memory: the port has lost all connections and is unusable; "
        "open another port");
    for (const auto& each : ends_)
        on_failure(each.get(), each->endpoint, UCS_ERR_CONNECTION_RESET);
    // Others wait for a first packet.
    end_all([](ucx_link& one) { return one.end_ == nullptr && !one.asked_to_close_; },
            {errc::disconnected, UCS_ERR_CONNECTION_RESET});
}

}  // namespace amalgam::detail
