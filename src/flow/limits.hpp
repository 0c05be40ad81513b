#pragma once

#include <chrono>
#include <cstddef>

/// Sizes and times of flow that users do not set; those that they set are run_options
/// (<amalgam/flow/run.hpp>) and launch_options (<amalgam/flow/launcher.hpp>). Those marked "wire"
/// must be equal in all processes of a run.
namespace amalgam::detail::limits {

// ---- channels
/// Counted per batch in credits in addition to its bytes, so that empty items are bounded. Wire.
inline constexpr std::size_t batch_overhead = 32;

// ---- liveness and loops
/// A process is lost when so many checks within run_options::silence_limit go unanswered.
inline constexpr unsigned liveness_checks = 4;
/// For one answer about a loop; the end of a run waits this long for it at most.
inline constexpr std::chrono::seconds loop_answer_limit{1};
/// A receiver that was lost has so long to report why.
inline constexpr std::chrono::seconds failure_report_limit{1};
/// Longest pause between two attempts to reach a process that may not have started yet.
inline constexpr std::chrono::milliseconds longest_reach_pause{200};

// ---- the launcher
/// Longest line of the control connection between a process and its launcher.
inline constexpr std::size_t max_control_bytes = std::size_t{8} << 20;
/// A process's reason to fail, and its address, are cut to this.
inline constexpr std::size_t max_reason_bytes = 4096;
/// Longest line of a process's output that is kept whole.
inline constexpr std::size_t max_line_bytes = std::size_t{64} << 10;
/// Longest frame between the launcher and its agent on another host. Wire.
inline constexpr std::size_t max_remote_frame_bytes = std::size_t{64} << 20;
/// For the processes of a run to answer somebody who looks at it.
inline constexpr std::chrono::milliseconds status_limit{1000};
/// The same for its ULTs with their stacks.
inline constexpr std::chrono::milliseconds ults_limit{3000};
/// Longest answer of a launcher to those who look.
inline constexpr std::size_t max_status_bytes = std::size_t{1} << 30;
/// For the kernel to end processes that were killed.
inline constexpr std::chrono::milliseconds kill_limit{10000};

}  // namespace amalgam::detail::limits
