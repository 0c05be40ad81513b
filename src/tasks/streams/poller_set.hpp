#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <amalgam/tasks/extension/drive.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/poller.hpp>

#include "tasks/dispatch/dispatcher.hpp"

namespace amalgam::detail {

class stream_loop;

/// The pollers of a stream: a list that any thread changes under a lock, and the stream's own copy,
/// renewed when its version is outdated.
///
/// Threads: add() and remove() from any; the rest from the stream.
class poller_set {
public:
    void add(poller& what);
    /// False: not found. Returns once the stream's copy no longer contains it.
    bool remove(poller& what, stream_loop& of);

    bool any();  // from any thread

    std::size_t poll() noexcept {
        poller* const one = only();
        if (one == nullptr) return poll_all();
        const std::size_t happened = one->poll();
        dispatcher::stay_in_parent();
        return happened;
    }
    /// The only one. Null: there are several or none, or the list changed.
    poller* only() const noexcept { return only_.load(std::memory_order_seq_cst); }
    /// Whether one of them has, or the list changed.
    bool has_work() noexcept {
        poller* const one = only();
        return one != nullptr ? one->has_work() : any_has_work();
    }
    /// As poller::has_more(), likewise.
    bool has_more() noexcept {
        poller* const one = only_.load(std::memory_order_relaxed);
        return one != nullptr ? one->has_more() : any_has_more();
    }
    /// Arms all pollers. False: one has work, or the list changed.
    bool prepare_to_sleep() noexcept;

    /// From here to end_use(), remove() by others waits for the stream to renew its copy. False:
    /// somebody uses it already.
    /// Cost: an atomic operation each; a lock only after a change.
    bool begin_use() noexcept {
        return (used_.fetch_or(used, std::memory_order_seq_cst) & used) == 0;
    }
    // Either who removes one sees `used` as it is here, or this sees the list's new version, and
    // then takes the lock, and with it the turn of who removes one. After begin_use() it is the
    // same: what asks the pollers looks at the version first. Another may have begun by then, and
    // renews its copy itself.
    void end_use() noexcept {
        if (!end_use_unchanged()) [[unlikely]]
            renew_unless_used();
    }
    /// end_use() in two steps. False: the second must follow.
    bool end_use_unchanged() noexcept {
        used_.fetch_and(~used, std::memory_order_seq_cst);
        return only() != nullptr || !has_changed();
    }
    void renew_unless_used() noexcept;
    bool used_seen() const noexcept { return (used_.load(std::memory_order_seq_cst) & used) != 0; }
    /// For who does as begin_use() elsewhere, and has more to say in this word: see drive_turns.
    std::atomic<unsigned>& used_word() noexcept { return used_; }

    /// For a thread that has the stream to itself: both, around what it does.
    class in_use {
    public:
        explicit in_use(poller_set& which) noexcept : which_(which) { which_.begin_use(); }
        ~in_use() { which_.end_use(); }
        in_use(const in_use&) = delete;
        in_use& operator=(const in_use&) = delete;

    private:
        poller_set& which_;
    };

private:
    struct remover {
        waiter who;
        remover* next = nullptr;
    };
    // Whoever sees the version of the copy sees that copy.
    bool has_changed(std::memory_order how = std::memory_order_seq_cst) const noexcept {
        return version_.load(how) != current_version_.load(std::memory_order_acquire);
    }
    void count_change() noexcept;
    void renew() noexcept;
    remover* renew_locked() noexcept;
    static void tell(remover* first) noexcept;
    std::size_t poll_all() noexcept;
    bool any_has_work() noexcept;
    bool any_has_more() noexcept;
    bool erase(poller& what);
    void blank(poller& what) noexcept;

    std::vector<poller*> current_;        // the stream's; null where removed while polling
    std::atomic<poller*> only_{nullptr};  // of current_, if that has one and is the whole list
    std::atomic<std::uint64_t> current_version_{0};

    std::atomic<std::uint64_t> version_{0};
    std::mutex lock_;
    std::vector<poller*> wanted_;
    std::vector<poller*> next_;  // Capacity for renew(): it or current_ can hold all wanted ones.
    remover* removers_ = nullptr;
    static constexpr unsigned used = drive_turns::driven;  // Other bits are left as they are.
    std::atomic<unsigned> used_{0};
};

}  // namespace amalgam::detail
