#pragma once

#include <cstddef>
#include <deque>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/shared_pools.hpp>

namespace amalgam {

/// A set of streams for irregular work: each has a work_stealing_pool and steals from the others
/// when its own is empty. Spawn the first ULT into main_pool(). ULTs created with spawn(body) stay
/// on their creator's stream until another stream is idle.
///
/// Owner:   owns the streams and pools; the destructor stops the streams.
/// Threads: any.
/// Failure: throws error{invalid} for zero streams, and what execution_stream throws.
class work_stealing_team {
public:
    /// Streams are named `options.name` plus a number. If `options.cpu` names a core, they are
    /// bound to that core and the ones after it; `options.rank` likewise.
    explicit work_stealing_team(std::size_t streams, execution_stream_options options = {});
    ~work_stealing_team();
    work_stealing_team(const work_stealing_team&) = delete;
    work_stealing_team& operator=(const work_stealing_team&) = delete;

    std::size_t size() const noexcept { return streams_.size(); }
    /// One of its streams. Failure: throws std::out_of_range.
    execution_stream& stream(std::size_t which) { return streams_.at(which); }
    /// Pool for work from outside.
    pool& main_pool() noexcept { return pools_.front(); }

    /// Stops every stream after its ready work. Not callable from one of them.
    void stop();

private:
    std::deque<work_stealing_pool> pools_;
    std::deque<execution_stream> streams_;
};

}  // namespace amalgam
