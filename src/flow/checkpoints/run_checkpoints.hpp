#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/launcher.hpp>

#include "flow/checkpoints/checkpoint_files.hpp"

namespace amalgam::detail {

/// The checkpoints of a run, as the launcher sees them: which one is under way, who has written his
/// part, which one is the last complete one.
///
/// Threads: one.
class run_checkpoints {
public:
    using clock = std::chrono::steady_clock;

    /// Before anything is started: makes the folder, and locks it. Nothing without
    /// launch_options::checkpoints.
    /// Failure: throws error{invalid}, {denied}, {in_use}, {not_found} or {mismatch}, with a
    ///          sentence.
    explicit run_checkpoints(const launch_options& options);

    bool are_on() const noexcept { return !folder_.empty(); }
    const std::string& folder() const noexcept { return folder_; }
    /// The number of the last complete one; 0: none.
    std::uint64_t complete() const noexcept { return complete_; }
    bool is_under_way() const noexcept { return !left_.empty(); }

    /// When the next one is due by itself; clock::time_point::max(): never.
    clock::time_point due() const noexcept;
    /// Begins one: returns its number. Precondition: none is under way.
    std::uint64_t begin(clock::time_point now);
    /// Process `which` has written its part of it, unless `why` says why not. Returns what to tell
    /// the user once all have; until then, an empty sentence.
    struct news {
        std::string sentence;
        bool is_complete = false;
    };
    news take(std::size_t which, std::uint64_t number, const std::string& why);
    /// Whether process `which` owes its part.
    bool owes(std::size_t which) const noexcept;
    /// The one that is under way will not be complete: a process has ended.
    void abandon() noexcept;
    /// The run has ended well.
    void remove_all() noexcept;

private:
    news finish();
    news could_not_be_taken(const std::string& why) const;

    std::string folder_;
    std::vector<std::string> processes_;
    const std::chrono::milliseconds every_;
    unique_fd lock_;
    std::uint64_t latest_ = 0;
    std::uint64_t complete_ = 0;
    std::vector<std::size_t> left_;  // Who owe their parts.
    std::string failed_;             // Why the one under way cannot be complete.
    clock::time_point began_{};
};

}  // namespace amalgam::detail
