#pragma once

#include <cstddef>
#include <iterator>
#include <optional>

namespace amalgam {

/// Single-pass iterator over what `Source::next()` returns, an optional, until it is empty: for
/// range-for over streamed answers and searches.
///
/// Owner:   borrows the source.
/// Failure: construction and ++ throw what next() throws.
template <typename Source, typename T>
class next_iterator {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;

    next_iterator() = default;
    explicit next_iterator(Source& of) : of_(&of) { ++*this; }
    T& operator*() const { return *value_; }
    T* operator->() const { return &*value_; }
    next_iterator& operator++() {
        value_ = of_->next();
        return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const next_iterator& at, std::default_sentinel_t) noexcept {
        return !at.value_.has_value();
    }

private:
    Source* of_ = nullptr;
    mutable std::optional<T> value_;
};

}  // namespace amalgam
