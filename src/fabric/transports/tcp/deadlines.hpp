#pragma once

#include <set>
#include <utility>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Something that has a deadline.
///
/// Failure: the constructor throws std::bad_alloc. It allocates the list node, so adding cannot
///          fail later.
class timed {
public:
    using entry = std::pair<clock::time_point, timed*>;

    virtual void due(clock::time_point now) noexcept = 0;

protected:
    timed();
    timed(const timed&) = delete;
    virtual ~timed() = default;

private:
    friend class deadlines;
    std::set<entry>::node_type place_;  ///< Empty while in the list.
};

/// A few deadlines, with one descriptor that becomes readable at the earliest of them.
///
/// Owner:   does not own its entries: drop those that end earlier.
/// Threads: the port's thread.
/// Failure: the constructor throws error{no_memory} if no descriptor is available.
/// Cost:    one system call if a new deadline is the earliest; none to drop one.
class deadlines {
public:
    deadlines();
    int fd() const noexcept { return fd_.get(); }

    /// Precondition: `thing` is not in the list.
    void add(clock::time_point when, timed& thing) noexcept;
    void drop(clock::time_point when, timed& thing) noexcept;
    bool empty() const noexcept { return all_.empty(); }

    /// Removes and notifies all entries that are due. They may add and drop meanwhile. Afterwards
    /// fd() is not readable until the next deadline.
    void run(clock::time_point now) noexcept;

private:
    void wake_at(clock::time_point when) noexcept;

    unique_fd fd_;
    clock::time_point set_for_ = clock::time_point::max();
    std::set<timed::entry> all_;
};

}  // namespace amalgam::detail
