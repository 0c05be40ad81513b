#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/run_status.hpp>

#include "flow/launcher/control.hpp"

namespace amalgam::detail {

/// What the launcher knows of its processes, for those who look at the run. Each look asks all
/// processes; so a run that nobody looks at pays nothing.
///
/// Threads: look() by any; the rest by the supervisor.
class run_watch {
public:
    explicit run_watch(std::string command);

    /// Processes, in the order of their numbers.
    void add(const std::string& label, const std::string& where);
    /// It takes part in the run: whether it `can_look` at itself.
    void is_ready(std::size_t which, const std::string& address, bool can_look);
    void has_ended(std::size_t which);
    /// Readable when somebody looks: then take_asked() is to be called.
    int wanted() const noexcept { return wanted_.get(); }
    /// The processes to send `look` to. Those that have not answered an earlier one are asked again
    /// when they have, so that none is sent more than it reads.
    std::vector<std::size_t> take_asked();
    /// Returns whether to send it `look` again.
    bool take(std::size_t which, const control_message& report);

    /// Asks all processes and waits for their answers, or for `limit`.
    run_status look(std::chrono::milliseconds limit);

private:
    struct process {
        process_status known;
        bool can_look = false;
        bool asked = false;          // And has not answered.
        std::uint64_t asked_in = 0;  // Look for which it was last asked.
        std::uint64_t answered = 0;  // Look that it has answered.

        bool owes(std::uint64_t look) const noexcept {
            return known.running && can_look && answered < look;
        }
    };
    bool all_have_answered(std::uint64_t look) const noexcept;

    const std::string command_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    unique_fd wanted_;
    std::mutex lock_;
    std::condition_variable news_;
    std::vector<process> processes_;
    std::string graph_;
    std::uint64_t looks_ = 0;
};

}  // namespace amalgam::detail
