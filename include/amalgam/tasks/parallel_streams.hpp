#pragma once

#include <cstddef>

#include <amalgam/tasks/pool.hpp>

namespace amalgam {

class work_stealing_team;

/// The streams that run a parallel_for(), a task_graph or the like: a team, or a pool that several
/// streams serve. Usually not named: pass the team.
///
/// Owner:   borrows the team or pool, whose streams must serve it until what runs on it has
///          returned.
/// Threads: any.
class parallel_streams {
public:
    /// Work goes to the pool of the caller's stream, if that is one of the team; others steal it.
    parallel_streams(work_stealing_team& team) noexcept : team_(&team) {}
    /// `streams`: how many serve `shared`. Throws error{invalid} for 0.
    parallel_streams(pool& shared, std::size_t streams);

    /// Number of streams.
    std::size_t size() const noexcept;
    /// Whether the caller is a ULT that one of these streams runs; with a pool, a ULT of that pool.
    bool runs_caller() const noexcept;
    /// Where the caller's new work goes.
    pool& nearest_pool() const noexcept;

private:
    work_stealing_team* team_ = nullptr;
    pool* pool_ = nullptr;
    std::size_t streams_ = 0;
};

}  // namespace amalgam
