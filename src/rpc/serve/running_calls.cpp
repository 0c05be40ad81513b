#include "rpc/serve/running_calls.hpp"

#include <new>
#include <utility>

namespace amalgam::detail {

served_call* running_calls::find(const peer& from, std::uint64_t id) const noexcept {
    served_call* each = heads_[bucket(from, id)];
    while (each != nullptr && (each->id() != id || each->one_way() || !(each->from() == from)))
        each = each->next;
    return each;
}

void running_calls::drop() noexcept {
    for (served_call*& head : heads_) {
        while (head != nullptr) {
            served_call& one = *std::exchange(head, head->next);
            one.next = nullptr;
            one.link = nullptr;
        }
    }
}

void running_calls::grow() noexcept {
    std::vector<served_call*> before;
    try {
        before.resize(4 * heads_.size());
    } catch (const std::bad_alloc&) {
        return;  // Chains just get longer.
    }
    before.swap(heads_);
    for (served_call* each : before) {
        while (each != nullptr)
            push(*std::exchange(each, each->next));
    }
}

}  // namespace amalgam::detail
