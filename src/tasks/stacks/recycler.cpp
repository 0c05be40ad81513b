#include "tasks/stacks/recycler.hpp"

#include "tasks/limits.hpp"

namespace amalgam::detail {

free_list depot::take_list() noexcept {
    const std::lock_guard hold(lock_);
    return count_ == 0 ? free_list{} : lists_[--count_];
}

void depot::give_list(free_list list) noexcept {
    if (list.count == 0) return;
    {
        const std::lock_guard hold(lock_);
        if (count_ < limits::max_free_lists) {
            lists_[count_++] = list;
            return;
        }
    }
    while (free_node* node = list.pop())
        release_(*node);
}

void free_stock::refill(depot& from) noexcept {
    newest_ = std::exchange(full_, {});
    if (newest_.head == nullptr) newest_ = from.take_list();
}

void free_stock::shelve(depot& to) noexcept {
    to.give_list(std::exchange(full_, std::exchange(newest_, {})));
}

}  // namespace amalgam::detail
