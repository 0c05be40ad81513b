#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/report.hpp>
#include <amalgam/rpc/extension/http_listener.hpp>

namespace amalgam::detail {

/// One process of a run, as the page shows it.
struct shown_process {
    std::string label;  ///< "G2.1"
    std::string where;  ///< "pid 4711", or "on node7"
    std::string state;  ///< "starting", "running", or how it ended
    bool running = false;
};

/// The live page of a run: one HTML page, its style and scripts, and a stream of events that the
/// page draws. Whoever opens it needs the token in url(): other users of this host have no part in
/// the run.
///
/// Every event is a whole state, so a browser that reads slowly misses steps and is up to date with
/// its next one.
///
/// Threads: one, the supervisor's; a thread of its own, after start(), serves browsers.
/// Failure: the constructor throws as http_listener's does, before anything is started.
class run_page {
public:
    static constexpr std::size_t most_nodes = 400;  ///< Shown; further ones are counted.
    static constexpr std::size_t most_channels = 1200;
    static constexpr std::size_t most_lines = 400;  ///< Of output, kept for browsers to come.
    static constexpr std::size_t most_line_bytes = 1000;
    static constexpr std::size_t most_points = 600;  ///< Of the time lines.
    static constexpr std::chrono::milliseconds interval{500};

    /// `command`: shown as the title.
    run_page(std::string_view address, std::string command);
    ~run_page();

    /// With the token: http://127.0.0.1:8642/?token=…
    std::string url() const;
    /// Readable when the stop button was pressed.
    int stop_fd() const noexcept { return stop_.get(); }

    /// Serves browsers from now on. After the last fork().
    void start() { listener_.start(); }
    /// The state from now on; `sentence`: the last thing to tell about the run, or empty.
    void show(const run_report& so_far, const std::vector<shown_process>& processes,
              std::string_view state, std::string_view sentence);
    /// A line of output.
    void log(std::string_view line);
    /// Waits until browsers have the last state, half a second at most.
    void finish() noexcept;

private:
    using clock = std::chrono::steady_clock;
    struct line {
        std::uint64_t number;
        std::string text;
    };
    struct sample {
        clock::time_point when;
        run_report report;
    };
    /// What one browser has got.
    struct progress {
        std::uint64_t lines = 0;
        std::uint64_t state = 0;
        bool has_history = false;
    };

    http_answer answer(const http_request& asked);
    http_answer stop(const http_request& asked);
    std::string next_for(progress& browser);

    const std::string command_;
    const std::string token_;
    const clock::time_point start_ = clock::now();
    unique_fd stop_;

    std::mutex lock_;  // All below but the last.
    std::deque<sample> samples_;
    std::deque<std::string> points_;
    std::deque<line> lines_;
    std::uint64_t line_number_ = 0;
    std::uint64_t state_number_ = 0;
    std::string state_;

    http_listener listener_;  // Last: its thread uses the others.
};

}  // namespace amalgam::detail
