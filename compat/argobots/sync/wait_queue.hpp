#pragma once

#include <atomic>
#include <cstdint>

#include <amalgam/tasks/parking.hpp>

#include "units/blocked.hpp"

namespace amalgam::argobots {

/// One that waits, on its own stack.
class queued {
public:
    explicit queued(bool until_deadline = false)
        : now_(until_deadline ? stage::waits : stage::stays) {}

    /// For who wakes it, with the lock of its queue. False: its deadline has passed, and it leaves
    /// by itself.
    bool take() noexcept {
        if (now_.load(std::memory_order_relaxed) == stage::stays) return true;
        stage before = stage::waits;
        return now_.compare_exchange_strong(before, stage::taken, std::memory_order_acq_rel);
    }
    /// For itself, after its deadline and without the lock. False: it is being woken, and may not
    /// touch its queue any more.
    bool leave() noexcept {
        stage before = stage::waits;
        return now_.compare_exchange_strong(before, stage::leaves, std::memory_order_acq_rel);
    }
    bool leaves() const noexcept { return now_.load(std::memory_order_relaxed) == stage::leaves; }

    waiter who;
    queued* next = nullptr;

private:
    enum class stage : std::uint8_t {
        stays,  ///< Until it is woken: it has no deadline.
        waits,
        taken,
        leaves
    };
    std::atomic<stage> now_;
};

/// First in, first out. With whatever lock its owner has.
class wait_queue {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    void push(queued& one) noexcept {
        one.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &one;
        last_ = &one;
    }
    /// Whether one of them does not leave.
    bool anybody_waits() const noexcept {
        for (const queued* each = first_; each != nullptr; each = each->next) {
            if (!each->leaves()) return true;
        }
        return false;
    }
    bool anybody_leaves() const noexcept {
        for (const queued* each = first_; each != nullptr; each = each->next) {
            if (each->leaves()) return true;
        }
        return false;
    }
    /// The first that does not leave. Null: there is none.
    queued* pop() noexcept {
        queued* before = nullptr;
        for (queued* each = first_; each != nullptr; before = each, each = each->next) {
            if (!each->take()) continue;
            unlink(*each, before);
            return each;
        }
        return nullptr;
    }
    /// A chain, linked by `next`, of all that do not leave.
    queued* take_all() noexcept {
        wait_queue taken;
        while (queued* const each = pop())
            taken.push(*each);
        return taken.first_;
    }
    void remove(queued& one) noexcept {
        queued* before = nullptr;
        for (queued* each = first_; each != &one; each = each->next)
            before = each;
        unlink(one, before);
    }

private:
    void unlink(const queued& one, queued* before) noexcept {
        (before == nullptr ? first_ : before->next) = one.next;
        if (last_ == &one) last_ = before;
    }

    queued* first_ = nullptr;
    queued* last_ = nullptr;
};

/// A mutex without hand-over, unlike amalgam::mutex: unlock() frees it, and whoever comes first
/// takes it. Argobots' programs spin on trylock without letting others run, which waits for ever if
/// the next owner is a parked ULT of the same stream.
///
/// Valid as zero bytes. May be destroyed by the last to lock and unlock it, even if the previous
/// unlock() has not returned.
class open_mutex {
public:
    bool try_lock() noexcept;
    /// `what`: what it is a part of.
    void lock(awaited what);
    void unlock() noexcept;

private:
    // busy: somebody changes the queue. The last store of each operation frees it and says the
    // rest.
    enum : std::uint32_t { locked = 1, waited_for = 2, busy = 4 };
    std::uint32_t become_busy() noexcept;

    std::atomic<std::uint32_t> state_{0};
    wait_queue waiting_;
};

}  // namespace amalgam::argobots
