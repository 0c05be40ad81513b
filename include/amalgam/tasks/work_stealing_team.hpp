#pragma once

#include <cstddef>
#include <deque>

#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/shared_pools.hpp>

namespace amalgam {

/// Streams that share out irregular work: each has a work_stealing_pool, and steals from the
/// others when it is empty. Spawn the first ULT into main_pool(); what a ULT makes with spawn(body)
/// stays with its stream until another one has nothing to do.
///
/// Owner:   owns the streams and pools; the destructor stops the streams.
/// Threads: any.
/// Failure: throws error{invalid} for no stream at all, and what execution_stream throws.
class work_stealing_team {
public:
    /// Streams named `options.name` and a number; with a core in `options.cpu` they are bound to
    /// that one and those after it.
    explicit work_stealing_team(std::size_t streams, execution_stream_options options = {});
    ~work_stealing_team();
    work_stealing_team(const work_stealing_team&) = delete;
    work_stealing_team& operator=(const work_stealing_team&) = delete;

    std::size_t size() const noexcept { return streams_.size(); }
    execution_stream& stream(std::size_t which) { return streams_.at(which); }
    /// Where work from outside goes.
    pool& main_pool() noexcept { return pools_.front(); }

    /// Stops every stream, after the work that is ready. Not from one of them.
    void stop();

private:
    std::deque<work_stealing_pool> pools_;
    std::deque<execution_stream> streams_;
};

}  // namespace amalgam
