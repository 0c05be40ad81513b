#include <utility>

#include <amalgam/tasks/detail/wait_list.hpp>

namespace amalgam::detail {

void wait_list::push(wait_node& node) noexcept {
    node.prev = tail_;
    node.next = nullptr;
    node.listed = true;
    (tail_ == nullptr ? head_ : tail_->next) = &node;
    tail_ = &node;
}

void wait_list::remove(wait_node& node) noexcept {
    (node.prev == nullptr ? head_ : node.prev->next) = node.next;
    (node.next == nullptr ? tail_ : node.next->prev) = node.prev;
    node.listed = false;
}

wait_node* wait_list::pop() noexcept {
    wait_node* const first = head_;
    if (first != nullptr) remove(*first);
    return first;
}

wait_node* wait_list::take_all() noexcept {
    for (wait_node* each = head_; each != nullptr; each = each->next)
        each->listed = false;
    tail_ = nullptr;
    return std::exchange(head_, nullptr);
}

void wait_list::unpark_all(wait_node* first) noexcept {
    while (first != nullptr)
        std::exchange(first, first->next)->who.unpark();
}

bool wait_list::wait_unlocked_until(wait_node& node, waiter::time_point deadline,
                                    const char* what) noexcept {
    node.who.waits_for(what);
    if (node.who.park_until(deadline)) return true;
    lock();
    const bool still_listed = node.listed;
    if (still_listed) remove(node);
    unlock();
    if (still_listed) return false;
    node.who.park();  // somebody took the node off the list: the permit comes
    return true;
}

bool wait_list::wait_cancelable_until(wait_node& node, waiter::time_point deadline,
                                      const char* what) {
    node.who.allow_cancel();
    if (wait_unlocked_until(node, deadline, what)) return true;
    throw_if_canceled();
    return false;
}

}  // namespace amalgam::detail
