#pragma once

namespace amalgam::detail {

/// The two members of `T` that link a chain.
template <typename T>
struct chain_links {
    static T*& next(T& one) noexcept { return one.next; }
    static T*& previous(T& one) noexcept { return one.previous; }
};

/// An intrusive doubly linked list.
///
/// Owner: does not own its elements. An element is in at most one chain and must not move while in
///        it.
template <typename T, typename Links = chain_links<T>>
class chain {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    T* first() const noexcept { return first_; }

    void append(T& one) noexcept {
        Links::next(one) = nullptr;
        Links::previous(one) = last_;
        (last_ != nullptr ? Links::next(*last_) : first_) = &one;
        last_ = &one;
    }
    /// Precondition: `place` is in this chain.
    void insert_before(T& place, T& one) noexcept {
        T* const before = Links::previous(place);
        Links::next(one) = &place;
        Links::previous(one) = before;
        Links::previous(place) = &one;
        (before != nullptr ? Links::next(*before) : first_) = &one;
    }
    void remove(T& one) noexcept {
        T* const before = Links::previous(one);
        T* const after = Links::next(one);
        (before != nullptr ? Links::next(*before) : first_) = after;
        (after != nullptr ? Links::previous(*after) : last_) = before;
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
