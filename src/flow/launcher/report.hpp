#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <amalgam/flow/launcher.hpp>
#include <amalgam/flow/report.hpp>

namespace amalgam::detail {

/// Collects the reports of a run's processes, and formats them for the user.
///
/// Threads: one.
class collected_report {
public:
    using clock = std::chrono::steady_clock;

    explicit collected_report(const launch_options& options)
        : show_every_(options.stats), file_(options.report_file), web_(!options.web.empty()) {}

    /// Checks before the run that the file can be written, as far as possible.
    /// Failure: throws error{not_found}.
    static void check(const std::string& file);

    /// Report interval for the processes, in milliseconds; 0: never.
    std::uint64_t interval_ms() const noexcept;
    /// Replaces the previous report of that process.
    void take(std::size_t process, std::string_view json);

    /// All processes are started again.
    void start_over() noexcept {
        by_process_.clear();
        last_ = {};
    }

    /// Time from `now` until the next line is due; if none is, never.
    std::chrono::milliseconds until_next(clock::time_point now,
                                         std::chrono::milliseconds never) const noexcept;
    /// A line, if one is due; else empty.
    std::string next_line(clock::time_point now);
    /// The final report for people, or empty. Writes the file.
    /// Failure: throws error{not_found} if the file cannot be written.
    std::string finish() const;
    /// What all processes have reported so far.
    run_report all() const;

private:
    const std::chrono::milliseconds show_every_;
    const std::string file_;
    const bool web_;
    std::map<std::size_t, run_report> by_process_;
    clock::time_point next_{};
    run_report last_;  // Of the previous line.
    bool news_ = false;
};

}  // namespace amalgam::detail
