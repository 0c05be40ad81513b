#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace amalgam::detail {

/// First in, first out, in a ring that grows by doubling: <deque> costs users' builds more than it
/// gives here.
template <typename T>
class value_queue {
public:
    bool empty() const noexcept { return size_ == 0; }
    void push(T&& value) {
        if (size_ == slots_.size()) grow();
        slots_[index(size_)].emplace(std::move(value));
        ++size_;
    }
    /// Precondition: not empty.
    std::optional<T> pop() {
        std::optional<T> first(std::move(slots_[first_]));
        slots_[first_].reset();
        first_ = index(1);
        --size_;
        return first;
    }

private:
    // The number of slots is a power of two.
    std::size_t index(std::size_t nth) const noexcept {
        return (first_ + nth) & (slots_.size() - 1);
    }
    void grow() {
        std::vector<std::optional<T>> larger(slots_.empty() ? 4 : 2 * slots_.size());
        for (std::size_t i = 0; i < size_; ++i)
            larger[i].emplace(std::move(*slots_[index(i)]));
        slots_.swap(larger);
        first_ = 0;
    }

    std::vector<std::optional<T>> slots_;
    std::size_t first_ = 0;
    std::size_t size_ = 0;
};

}  // namespace amalgam::detail
