#pragma once

#include <amalgam/tasks/parking.hpp>

#include "units/thread.hpp"

namespace amalgam::argobots {

/// One that waits, on its own stack.
struct queued {
    waiter who;
    queued* next = nullptr;
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
    /// Null: nobody.
    queued* pop() noexcept {
        queued* const one = first_;
        if (one != nullptr) first_ = one->next;
        return one;
    }
    /// A chain linked by `next`.
    queued* take_all() noexcept {
        queued* const all = first_;
        first_ = nullptr;
        return all;
    }
    /// False: it is not in here.
    bool remove(queued& one) noexcept {
        queued* before = nullptr;
        for (queued* each = first_; each != nullptr; before = each, each = each->next) {
            if (each != &one) continue;
            (before == nullptr ? first_ : before->next) = one.next;
            if (last_ == &one) last_ = before;
            return true;
        }
        return false;
    }

private:
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
    void lock();
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
