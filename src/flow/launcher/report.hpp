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

/// What the processes of a run say of their nodes, put together for who looks on.
///
/// Threads: one.
class collected_report {
public:
    using clock = std::chrono::steady_clock;

    explicit collected_report(const launch_options& options)
        : show_every_(options.stats), file_(options.report_file) {}

    /// Whether the file can be written, as far as that is known before the run.
    /// Failure: throws error{not_found}.
    static void check(const std::string& file);

    /// How often the processes shall say something, in milliseconds; 0: never.
    std::uint64_t interval_ms() const noexcept;
    /// What that process says now instead of what it said before.
    void take(std::size_t process, std::string_view json);

    /// How long until something is to be shown, from `now`; never: nothing before that.
    std::chrono::milliseconds until_next(clock::time_point now,
                                         std::chrono::milliseconds never) const noexcept;
    /// A line, if it is time for one; else nothing.
    std::string next_line(clock::time_point now);
    /// All, at the end: for people, or nothing. Writes the file.
    /// Failure: throws error{not_found} when the file cannot be written.
    std::string finish() const;

private:
    run_report all() const;

    const std::chrono::milliseconds show_every_;
    const std::string file_;
    std::map<std::size_t, run_report> by_process_;
    clock::time_point next_{};
    bool news_ = false;
};

}  // namespace amalgam::detail
