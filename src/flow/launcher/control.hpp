#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// Environment variable with the descriptor number of a launched process's control line.
inline constexpr const char* control_variable = "AMALGAM_CONTROL";

/// Messages between the launcher and a process it started, in this order:
///
///     launcher -> process   welcome   who you are, and the config
///     process  -> launcher  key       the fingerprint of my key; only if the run makes keys
///     launcher -> process   keys      those of all processes
///     process  -> launcher  ready     my graph fits; this is my address
///                           refused   my graph does not fit, and why; nothing was started
///     launcher -> process   go        all addresses
///     launcher -> process   status_query  report now, with your numbers; to those that say
///     `answers_queries` process  -> launcher  report    progress of my nodes, at the interval or
///     after `status_query`
///     launcher -> process   checkpoint  sources, mark your streams for that checkpoint
///     process  -> launcher  saved     my part of that checkpoint is written, or why it is not
///     process  -> launcher  failed    I am about to end, and why
///
/// One JSON object per line, of at most max_control_bytes. A side that sees the other end closed
/// ends, too.
struct control_message {
    enum class kind {
        welcome,
        key,
        keys,
        ready,
        refused,
        go,
        status_query,
        report,
        checkpoint,
        saved,
        failed
    };

    kind what = kind::welcome;
    std::string group;            ///< welcome
    std::size_t replica = 0;      ///< welcome
    std::string config;           ///< welcome: JSON, as to_json(flow_config)
    std::uint64_t report_ms = 0;  ///< welcome: milliseconds between two reports; 0: none
    std::string report;           ///< report: run_report::json()
    std::string metrics;          ///< report, if asked for: as encode_metrics() has them
    std::string address;          ///< ready; empty if no other process connects to this one
    std::string graph;            ///< ready: must be equal in every process
    bool answers_queries =
        false;                  ///< ready: whether it answers `status_query`; report: that it does
    std::string drawing;        ///< report, if asked for: graph::json()
    bool asks_ults = false;     ///< status_query: and with the ULTs
    std::string ults;           ///< report, if asked for them: as encode_ults() has them
    std::uint64_t join_ms = 0;  ///< key, ready: how long the others may take; 0: unlimited
    std::vector<std::string> keys;                    ///< key: one; keys: of all processes
    std::string checkpoints;                          ///< welcome: their folder; empty: none
    std::uint64_t checkpoint = 0;                     ///< checkpoint, saved: its number; welcome:
                                                      ///< to go on from it, unless 0
    std::string restart;                              ///< welcome: why it was started again
    std::string sentence;                             ///< refused, failed; saved: why it is not
    bool because_of_other = false;                    ///< failed: only because another group did
    std::vector<std::vector<std::string>> addresses;  ///< go: by group, then by replica
};

std::string encode(const control_message& message);  ///< Includes the line end.
/// Failure: `invalid` for malformed input.
result<control_message> decode_control(std::string_view line);

/// One end of the control line. Does not own the descriptor.
///
/// Threads: one at a time, but send() and receive() may run concurrently.
class control_line {
public:
    explicit control_line(int fd) noexcept : fd_(fd) {}

    /// False if the other end is gone. Blocks while its buffer is full. Omits a report that is too
    /// long, or its numbers, rather than fail the run.
    bool send(const control_message& message) noexcept;
    /// Waits for the next message; empty if the other end is gone or sends something malformed.
    std::optional<control_message> receive();
    /// Like receive(), but does not wait. Sets `gone` at the end.
    std::optional<control_message> try_receive(bool& gone);
    /// Why the last input was malformed; empty if the other end is just gone.
    const std::string& nonsense() const noexcept { return nonsense_; }
    /// The descriptor is closed, and its number may be another's: the other end is gone for good.
    void forget_descriptor() noexcept { fd_ = -1; }

private:
    std::optional<control_message> next(bool wait, bool& gone);

    int fd_;
    std::string read_;
    std::size_t looked_ = 0;  // Prefix known to have no line end.
    std::string nonsense_;
};

}  // namespace amalgam::detail
