#pragma once

#include <set>
#include <utility>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/unique_fd.hpp>

namespace amalgam::detail {

/// Something that has until a certain time.
///
/// Failure: the constructor throws std::bad_alloc; it makes the place in the list, so that being
///          added later cannot fail.
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

/// Until when each of a few things has time, with one descriptor that becomes readable when the
/// earliest time has come.
///
/// Owner:   nobody's things: drop what ends before its time.
/// Threads: the port's.
/// Failure: the constructor throws error{no_memory} when there is no descriptor to be had.
/// Cost:    a system call when a time becomes the earliest; none when one is dropped.
class deadlines {
public:
    deadlines();
    int fd() const noexcept { return fd_.get(); }

    /// Precondition: `thing` is not in the list.
    void add(clock::time_point when, timed& thing) noexcept;
    void drop(clock::time_point when, timed& thing) noexcept;
    bool empty() const noexcept { return all_.empty(); }

    /// Takes out, and tells, all whose time has come. They may add and drop meanwhile.
    /// Afterwards fd() is readable no more, until the next.
    void run(clock::time_point now) noexcept;

private:
    void wake_at(clock::time_point when) noexcept;

    unique_fd fd_;
    clock::time_point set_for_ = clock::time_point::max();
    std::set<timed::entry> all_;
};

}  // namespace amalgam::detail
