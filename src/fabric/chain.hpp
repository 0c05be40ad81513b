#pragma once

namespace amalgam::detail {

/// A list through the `next` and `previous` members of its elements.
///
/// Owner: nobody's elements; each is in one chain at most and stays where it is meanwhile.
template <typename T>
class chain {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    T* first() const noexcept { return first_; }

    void append(T& one) noexcept {
        one.next = nullptr;
        one.previous = last_;
        (last_ != nullptr ? last_->next : first_) = &one;
        last_ = &one;
    }
    void remove(T& one) noexcept {
        (one.previous != nullptr ? one.previous->next : first_) = one.next;
        (one.next != nullptr ? one.next->previous : last_) = one.previous;
    }
    T* take_first() noexcept {
        T* one = first_;
        if (one != nullptr) remove(*one);
        return one;
    }

private:
    T* first_ = nullptr;
    T* last_ = nullptr;
};

}  // namespace amalgam::detail
