#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <amalgam/core/metrics.hpp>
#include <amalgam/flow/run_status.hpp>
#include <amalgam/rpc/ult_report.hpp>

namespace amalgam::tool {

/// Whose numbers are shown: of engines, of a run, or of a directory's processes.
struct number_options {
    std::vector<std::string> uris;
    std::string run;        ///< "--run"; empty: not asked for, "0": the only run.
    std::string directory;  ///< "--directory"; empty: not asked for.
    std::string credentials;
    unsigned timeout_ms = 5000;

    bool of_run() const noexcept { return !run.empty(); }
    bool of_directory() const noexcept { return !directory.empty(); }
};

/// Adds these options.
void add_numbers(CLI::App& command, number_options& options);
/// Failure: a command line error, unless exactly one of the three is asked for.
void check(const number_options& options);

/// What was told at one time.
struct numbers_told {
    struct process {
        std::string name;  ///< "G2.1", "tcp://…"
        metric_snapshot numbers;
    };
    std::vector<process> processes;
    std::vector<std::string> silent;  ///< Sentences about those that did not answer.
    std::optional<run_status> run;

    /// All, each with the label {"process", its name}.
    metric_snapshot merged() const;
};

/// Reads numbers again and again.
class number_source {
public:
    virtual ~number_source() = default;
    /// Failure: throws error, if nobody can be asked at all.
    virtual numbers_told read() = 0;
    /// The ULTs of a process that read() has told of, by its name. Failure: throws error.
    virtual ult_report read_ults(const std::string& process) = 0;
};

/// Failure: throws error or a command line error.
std::unique_ptr<number_source> open_numbers(const number_options& options);

}  // namespace amalgam::tool
