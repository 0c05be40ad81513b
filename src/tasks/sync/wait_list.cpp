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

void wait_list::insert_in_order(wait_node& node) noexcept {
    wait_node* after = tail_;  // wants more
    while (after->prev != nullptr && after->prev->wants > node.wants)
        after = after->prev;
    node.prev = after->prev;
    node.next = after;
    node.listed = true;
    (after->prev == nullptr ? head_ : after->prev->next) = &node;
    after->prev = &node;
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

bool wait_list::leave(wait_node& node) noexcept {
    lock();
    const bool still_listed = node.listed;
    if (still_listed) remove(node);
    unlock();
    if (!still_listed) node.who.park();
    return still_listed;
}

}  // namespace amalgam::detail
