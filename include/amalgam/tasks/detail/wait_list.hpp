#pragma once

#include <atomic>

#include <amalgam/tasks/parking.hpp>

namespace amalgam::detail {

/// One who waits, on its own stack, in the order of arrival.
struct wait_node {
    waiter who;
    wait_node* next = nullptr;
    wait_node* prev = nullptr;
    bool listed = false;
};

/// The queue inside a mutex, condition variable or event. Its lock is held for a few
/// instructions only, never across a switch or a park.
class wait_list {
public:
    void lock() noexcept;
    void unlock() noexcept { busy_.store(false, std::memory_order_release); }

    // The rest with the lock held.
    bool empty() const noexcept { return head_ == nullptr; }
    void push(wait_node& node) noexcept;
    void remove(wait_node& node) noexcept;
    wait_node* pop() noexcept;
    wait_node* take_all() noexcept;  // linked by `next`

    /// Unparks a whole take_all() chain; each node may die as soon as it is unparked.
    static void unpark_all(wait_node* first) noexcept;

private:
    std::atomic<bool> busy_{false};
    wait_node* head_ = nullptr;
    wait_node* tail_ = nullptr;
};

}  // namespace amalgam::detail
