#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/flow/launcher.hpp>
#include <amalgam/flow/live_page.hpp>
#include <amalgam/rpc/metrics_server.hpp>

#include "flow/checkpoints/run_checkpoints.hpp"
#include "flow/launcher/output.hpp"
#include "flow/launcher/process.hpp"
#include "flow/launcher/report.hpp"
#include "flow/launcher/run_watch.hpp"
#include "flow/status/run_socket.hpp"

namespace amalgam::detail {

/// The parent of every process of a run. Introduces them to each other, prints their output, and
/// ends them all when one fails, on a signal, or if the launcher is gone.
///
/// Threads: one; run() blocks until everything it started is gone.
class supervisor {
public:
    /// `launcher` becomes readable when the launcher is gone. SIGCHLD and the signals that end a
    /// run must already be blocked.
    supervisor(const launch_options& options, std::string program, unique_fd launcher,
               run_checkpoints& checkpoints);

    /// Returns the exit code of the whole run.
    int run();

private:
    using clock = std::chrono::steady_clock;

    void start_all();
    void run_until_all_have_ended();
    void say_that_checkpoint_is_kept();
    bool starts_again();
    void start_over();
    std::string why_no_checkpoint() const;
    void begin_checkpoint(bool asked);
    void stop_safely();
    void stop_for_page();
    void end_run(int exit_code, std::string why);
    void begin_checkpoint_when_due();
    void take_saved(launched_process& from, const control_message& message);
    void offer_status();
    void ask_for_status();
    std::size_t number_of(const launched_process& one) const noexcept {
        return static_cast<std::size_t>(&one - processes_.data());
    }
    void wait_for_something();
    void take_signals();
    bool take_messages(launched_process& from);
    void take(launched_process& from, const control_message& message);
    void read_output(launched_process& from);
    void reap();
    void check_that_nobody_left_early();
    void wait_for_the_others_of(std::uint64_t limit_ms);
    void check_that_nobody_is_late();
    void check_that_the_run_is_not_late();
    void check_that_somebody_ran();
    void take_key(launched_process& from, const control_message& message);
    void share_keys_when_all_have_one();
    void introduce_when_all_are_ready();
    bool others_wait_for(const launched_process& one) const noexcept;
    void stop_the_others(int exit_code, std::string why);
    void stop_now();
    bool anything_runs() const noexcept;
    bool stopped_by_us(const launched_process& one) const noexcept;
    const launched_process& first_to_blame() const noexcept;
    bool is_lost(const launched_process& one) const noexcept;
    void blame();
    void show_the_rest();
    void show_report();
    void open_page();
    void show_page();
    void take_page_requests();
    void take_checkpoint_for_page();
    void ask_for_status_of(const run_watch::question& what);
    void say(const std::string& sentence);

    const launch_options& options_;
    std::string program_;
    unique_fd launcher_;
    unique_fd signals_;
    std::vector<launched_process> processes_;
    output_queue out_{1};
    output_queue err_{2};
    collected_report report_;
    run_watch watch_;
    std::optional<run_socket> socket_;
    std::optional<metrics_server> numbers_;
    std::unique_ptr<live_page> page_;  // Null: none was asked for.
    clock::time_point page_at_{};      // When it is shown next.
    std::string last_said_;
    std::string note_;     // For the page, while the run goes on.
    std::string restart_;  // The last one, in words.

    run_checkpoints& checkpoints_;
    bool checkpoint_is_asked_for_ = false;  // The one under way: by somebody.
    /// What the next press of the page's stop button does.
    enum class stop_press : std::uint8_t {
        takes_checkpoint,  ///< If one can be taken; then the run ends.
        ends_wait,         ///< For that checkpoint: the run ends without it.
        ends_run           ///< That checkpoint could not be taken.
    };
    stop_press next_stop_ = stop_press::takes_checkpoint;
    unsigned restarts_ = 0;
    struct asked_end {
        int exit_code;
        std::string why;
    };
    std::optional<asked_end> end_asked_for_;  // After a process was lost, which decides until then.

    int ended_ = 0;
    const bool makes_keys_;
    bool shared_keys_ = false;
    bool introduced_ = false;
    bool more_messages_ = false;  // Left over from one turn.
    bool stopping_ = false;
    bool killed_ = false;  // By us: do not blame a process for this SIGKILL.
    std::optional<int> exit_code_;
    clock::time_point kill_at_{};
    clock::time_point stop_at_ = clock::time_point::max();   // launch_options::limit
    clock::time_point ready_by_ = clock::time_point::max();  // Set when the first is ready.
    std::chrono::milliseconds join_limit_{0};                // The corresponding duration.
};

}  // namespace amalgam::detail
