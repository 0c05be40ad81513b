#pragma once

#include <cstdint>

#include <amalgam/tasks/detail/spin_lock.hpp>
#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// One waiter, on its own stack; listed in order of arrival.
struct wait_node {
    wait_node() = default;
    /// For a suspended coroutine.
    explicit wait_node(work_unit& unit) noexcept : who(unit) {}

    waiter who;
    wait_node* next = nullptr;
    wait_node* prev = nullptr;
    bool listed = false;
    std::uintptr_t wants = 0;  ///< What it waits for; interpreted only by the primitive.
};

/// The queue inside every primitive that supports waiting. Its lock is held for a few instructions
/// only, never across a switch or a park.
class wait_list {
public:
    void lock() noexcept { busy_.lock(); }
    void unlock() noexcept { busy_.unlock(); }

    // The following need the lock.
    bool empty() const noexcept { return head_ == nullptr; }
    wait_node* front() const noexcept { return head_; }
    void push(wait_node& node) noexcept;
    /// Before all that want more.
    void push_in_order(wait_node& node) noexcept {
        if (tail_ == nullptr || tail_->wants <= node.wants) return push(node);
        insert_in_order(node);
    }
    void remove(wait_node& node) noexcept;
    wait_node* pop() noexcept;
    // Both return a chain linked by `next`.
    wait_node* take_all() noexcept;
    template <typename Served>
    wait_node* take_while(Served served) {
        wait_node* first = nullptr;
        wait_node** end = &first;
        while (head_ != nullptr && served(*head_)) {
            *end = pop();
            end = &(*end)->next;
            *end = nullptr;
        }
        return first;
    }

    /// Unparks a whole chain; each node may be destroyed as soon as it is unparked.
    static void unpark_all(wait_node* first) noexcept;

    /// Parks the owner of a listed node, which waits for `what`, without holding the lock. False:
    /// the deadline passed first, and the node is off the list.
    bool wait_unlocked_until(wait_node& node, waiter::time_point deadline,
                             const char* what) noexcept {
        node.who.waits_for(what);
        return node.who.park_once_until(deadline) || !leave(node);
    }
    /// The same, but throws error{canceled} if the ULT was canceled before it got what it waits
    /// for. The node is then off the list.
    bool wait_cancelable_until(wait_node& node, waiter::time_point deadline, const char* what) {
        // Both inlined: each return after a switch is mispredicted by the processor.
        node.who.allow_cancel();
        if (wait_unlocked_until(node, deadline, what)) return true;
        throw_if_canceled();
        return false;
    }

private:
    void insert_in_order(wait_node& node) noexcept;
    // After park_until() gave up. False: it was already off the list, and has parked again for the
    // permit.
    bool leave(wait_node& node) noexcept;

    spin_lock busy_;
    wait_node* head_ = nullptr;
    wait_node* tail_ = nullptr;
};

}  // namespace amalgam::detail
