#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/run_status.hpp>
#include <amalgam/rpc/ult_report.hpp>

#include "flow/launcher/control.hpp"

namespace amalgam::detail {

/// What the launcher knows of its processes, for those who look at the run. Each query asks all
/// processes; so a run that nobody looks at pays nothing.
///
/// Threads: query(), ask_ults() and query_ults() by any; the rest by the supervisor.
class run_watch {
public:
    explicit run_watch(std::string command);

    /// Processes, in the order of their numbers.
    void add(const std::string& label, const std::string& where);
    /// All processes are started again: they are added anew.
    void start_over();
    /// It takes part in the run: whether it `answers_queries`.
    void is_ready(std::size_t which, const std::string& address, bool answers_queries);
    void has_ended(std::size_t which);
    /// Readable when somebody queries: then take_asked() is to be called.
    int wanted() const noexcept { return wanted_.get(); }
    struct question {
        std::size_t which;
        bool ults;  ///< Ask for these, too.
    };
    /// The processes to send `status_query` to. Those that have not answered an earlier one are
    /// asked again when they have, so that none is sent more than it reads.
    std::vector<question> take_asked();
    /// Returns what to send it `status_query` for again.
    std::optional<question> take(std::size_t which, const control_message& report);

    /// Asks all processes and waits for their answers, or for `limit`.
    run_status query(std::chrono::milliseconds limit);

    /// Has the process of that label asked for its ULTs; take() will have the answer.
    /// Failure: `not_found`, `closed`: there is none, or none that would answer.
    result<void> ask_ults(std::string_view label);
    /// The same, and waits for the answer. Failure: also `timed_out`.
    result<ult_report> query_ults(std::string_view label, std::chrono::milliseconds limit);

private:
    struct process {
        process_status known;
        bool answers_queries = false;
        bool asked = false;          // And has not answered.
        std::uint64_t asked_in = 0;  // Query for which it was last asked.
        std::uint64_t answered = 0;  // Query that it has answered.
        bool wants_ults = false;     // Somebody does, of it.
        std::uint64_t ults_answers = 0;
        result<ult_report> ults{errc::timed_out, {}};

        bool owes(std::uint64_t query) const noexcept {
            return known.running && answers_queries && answered < query;
        }
    };
    bool all_have_answered(std::uint64_t query) const noexcept;
    static std::optional<question> next_question(process& of, std::size_t which,
                                                 std::uint64_t query);
    result<process*> find_running(std::string_view label);
    void wake_supervisor() const noexcept;

    const std::string command_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    unique_fd wanted_;
    std::mutex lock_;
    std::condition_variable news_;
    std::vector<process> processes_;
    std::string graph_;
    std::uint64_t queries_ = 0;
};

}  // namespace amalgam::detail
