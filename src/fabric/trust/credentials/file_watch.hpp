#pragma once

#include <functional>
#include <memory>

#include <amalgam/core/detail/forks.hpp>

namespace amalgam::detail {

/// Calls a function once per limits::credentials_interval, in a thread of its own, until this ends.
///
/// Threads: one at a time.
/// Failure: the constructor throws std::system_error if there can be no more threads, and
///          std::bad_alloc.
class file_watch {
public:
    explicit file_watch(std::function<void()> look);
    file_watch(const file_watch&) = delete;
    /// Does not wait for a call that is under way, as a file system may never answer it; so what
    /// the function uses must be its own. It is not called again.
    ~file_watch();

    /// The thread is the parent's, and this process, a child of fork(), has none.
    bool is_of_parent() const noexcept { return forked_.is_in_child(); }

private:
    struct state;

    const fork_check forked_;
    std::shared_ptr<state> state_;
};

}  // namespace amalgam::detail
