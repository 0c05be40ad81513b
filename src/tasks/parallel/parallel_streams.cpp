#include <algorithm>
#include <limits>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/execution_stream.hpp>
#include <amalgam/tasks/parallel_streams.hpp>
#include <amalgam/tasks/ult.hpp>
#include <amalgam/tasks/work_stealing_team.hpp>

namespace amalgam {

namespace {

/// More than any machine has, and far from overflowing sums.
constexpr std::size_t most_streams = std::numeric_limits<std::size_t>::max() / 4;

execution_stream* stream_of_caller(work_stealing_team& team) noexcept {
    execution_stream* const here = execution_stream::current();
    for (std::size_t i = 0; here != nullptr && i < team.size(); ++i) {
        if (&team.stream(i) == here) return here;
    }
    return nullptr;
}

}  // namespace

parallel_streams::parallel_streams(pool& shared, std::size_t streams)
    : pool_(&shared), streams_(std::min(streams, most_streams)) {
    if (streams != 0) return;
    throw error(errc::invalid,
                "a set of 0 streams, expected how many streams serve the pool; example: "
                "parallel_streams(pool, 4)");
}

std::size_t parallel_streams::size() const noexcept {
    return team_ != nullptr ? team_->size() : streams_;
}

bool parallel_streams::runs_caller() const noexcept {
    if (!this_task::in_ult()) return false;
    return team_ != nullptr ? stream_of_caller(*team_) != nullptr : &this_task::home() == pool_;
}

pool& parallel_streams::nearest_pool() const noexcept {
    if (team_ == nullptr) return *pool_;
    execution_stream* const here = stream_of_caller(*team_);
    return here != nullptr ? here->main_pool() : team_->main_pool();
}

}  // namespace amalgam
