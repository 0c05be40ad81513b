#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// This process's rank in a job started by mpirun or srun.
struct job_rank {
    std::size_t rank = 0;
    std::size_t size = 1;
    const char* starter = "";  ///< "mpirun", "srun"; empty without either.
};

/// From Open MPI's and Slurm's variables.
job_rank job_rank_from_environment();

/// Exchanges one text per rank between the ranks of a job, by PMIx, the interface that mpirun and
/// srun offer to their processes. The constructor loads its library: nothing else needs it.
///
/// Threads: one at a time.
class pmix_exchange {
public:
    /// Whether this process was started with PMIx.
    static bool is_here();

    /// Failure: throws error{unsupported} without the library, error{unreachable} if the starter
    ///          does not answer.
    pmix_exchange();
    pmix_exchange(const pmix_exchange&) = delete;
    pmix_exchange& operator=(const pmix_exchange&) = delete;
    ~pmix_exchange();

    /// Waits for all `size` ranks to publish their text; returns them by rank. All ranks call it
    /// the same number of times.
    /// Failure: throws error{disconnected}.
    std::vector<std::string> all_say(const std::string& own, std::size_t size);

private:
    struct library;
    std::unique_ptr<library> pmix_;
};

}  // namespace amalgam::detail
