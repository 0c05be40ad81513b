#include "tasks/recycler.hpp"

#include <algorithm>

namespace amalgam::detail {

free_list depot::take_list() noexcept {
    const std::lock_guard hold(lock_);
    return count_ == 0 ? free_list{} : lists_[--count_];
}

void depot::give_list(free_list list) noexcept {
    if (list.count == 0) return;
    {
        const std::lock_guard hold(lock_);
        if (count_ < std::min(most_, limit)) {
            lists_[count_++] = list;
            return;
        }
    }
    while (free_node* node = list.pop())
        release_(*node);
}

void depot::trim_slow(free_list& own) noexcept {
    // The newest blocks are warm in the cache: they stay.
    free_node* last_kept = own.head;
    for (std::size_t i = 1; i < list_length_; ++i)
        last_kept = last_kept->next;
    const free_list older{last_kept->next, own.count - list_length_};
    last_kept->next = nullptr;
    own.count = list_length_;
    give_list(older);
}

}  // namespace amalgam::detail
