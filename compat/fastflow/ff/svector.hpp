#pragma once

#include <cstddef>
#include <vector>

namespace ff {

/// A std::vector whose constructor reserves room instead of making elements, and whose iterators
/// are pointers. Threads: as std::vector.
template <typename T>
class svector : public std::vector<T> {
    using base = std::vector<T>;

public:
    using iterator = T*;
    using const_iterator = const T*;
    using vector_type = T;

    explicit svector(std::size_t room = 0) { base::reserve(room); }
    svector(const T* first, std::size_t count) : base(first, first + count) {}

    iterator begin() { return base::data(); }
    iterator end() { return base::data() + base::size(); }
    const_iterator begin() const { return base::data(); }
    const_iterator end() const { return base::data() + base::size(); }

    svector& operator+=(const svector& more) {
        base::insert(base::end(), more.base::begin(), more.base::end());
        return *this;
    }
    iterator erase(iterator at) {
        return base::data() + (base::erase(base::begin() + (at - begin())) - base::begin());
    }
    iterator erase(iterator from, iterator to) {
        const auto first = base::begin() + (from - begin());
        return base::data() + (base::erase(first, first + (to - from)) - base::begin());
    }
    void insert(iterator at, const T& value) {
        base::insert(base::begin() + (at - begin()), value);
    }
    void insert(iterator at, const_iterator from, const_iterator to) {
        base::insert(base::begin() + (at - begin()), from, to);
    }
};

}  // namespace ff
