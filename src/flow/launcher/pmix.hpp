#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

/// This process's place among the ranks that one mpirun or srun started.
struct job_rank {
    std::size_t rank = 0;
    std::size_t size = 1;
    const char* starter = "";  ///< "mpirun", "srun"; empty outside of both.
};

/// By Open MPI's and Slurm's variables.
job_rank job_rank_from_environment();

/// The ranks of a job tell each other one text each, by PMIx: the interface that mpirun and srun
/// offer to what they start. Its library is loaded when this is made: nobody else needs it.
///
/// Threads: one at a time.
class pmix_exchange {
public:
    /// Whether this process was started with PMIx.
    static bool is_here();

    /// Failure: throws error{unsupported} without the library, error{unreachable} when whoever
    /// started us does not answer.
    pmix_exchange();
    pmix_exchange(const pmix_exchange&) = delete;
    pmix_exchange& operator=(const pmix_exchange&) = delete;
    ~pmix_exchange();

    /// Waits for all `size` ranks to say theirs; their texts by rank. Once for each object.
    /// Failure: throws error{disconnected}.
    std::vector<std::string> all_say(const std::string& own, std::size_t size);

private:
    struct library;
    std::unique_ptr<library> pmix_;
};

}  // namespace amalgam::detail
