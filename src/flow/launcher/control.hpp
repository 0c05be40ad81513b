#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// The variable that holds the number of the descriptor a launched process talks over.
inline constexpr const char* control_variable = "AMALGAM_CONTROL";

/// What the launcher and a process it started tell each other, in this order:
///
///     launcher -> process   welcome   who you are, and the config
///     process  -> launcher  ready     my graph fits; this is my address
///                           refused   my graph does not fit, and why; nothing was started
///     launcher -> process   go        everybody's address
///     process  -> launcher  report    how far my nodes have come, as often as was asked for
///     process  -> launcher  failed    I am about to end, and why
///
/// One JSON object a line, of max_control_bytes at most. Whoever sees the other end closed ends
/// too.
struct control_message {
    enum class kind { welcome, ready, refused, go, report, failed };

    kind what = kind::welcome;
    std::string group;              ///< welcome
    std::size_t replica = 0;        ///< welcome
    std::string config;             ///< welcome: JSON, as to_json(flow_config)
    std::uint64_t report_ms = 0;    ///< welcome: milliseconds between two reports; 0: none
    std::string report;             ///< report: run_report::json()
    std::string address;            ///< ready; empty when nobody has to find this process
    std::string graph;              ///< ready: the same in every process, or they do not fit
    std::uint64_t join_ms = 0;      ///< ready: how long the others may take, too; 0: for ever
    std::string sentence;           ///< refused, failed
    bool because_of_other = false;  ///< failed: only because another group did
    std::vector<std::vector<std::string>> addresses;  ///< go: by group, then by replica
};

/// Longer lines are no messages: as much as reports of some 20,000 nodes take.
inline constexpr std::size_t max_control_bytes = std::size_t{8} << 20;

/// Of a sentence so much is told.
inline constexpr std::size_t max_sentence_bytes = 4096;

std::string encode(const control_message& message);  ///< With the line end.
/// Failure: `invalid`, for bytes that another program wrote there.
result<control_message> decode_control(std::string_view line);

/// One end of the conversation. Does not own the descriptor.
///
/// Threads: one at a time, but send() and receive() may run concurrently.
class control_line {
public:
    explicit control_line(int fd) noexcept : fd_(fd) {}

    /// False when the other end is gone. Blocks while its buffer is full. A report that is too
    /// long is left out: the run is worth more.
    bool send(const control_message& message) noexcept;
    /// Waits for the next message; nothing when the other end is gone, or sends nonsense.
    std::optional<control_message> receive();
    /// As receive(), but does not wait. `gone` becomes true at the end.
    std::optional<control_message> try_receive(bool& gone);
    /// Why what came last is no message; empty when the other end is only gone.
    const std::string& nonsense() const noexcept { return nonsense_; }

private:
    std::optional<control_message> next(bool wait, bool& gone);

    int fd_;
    std::string read_;
    std::size_t looked_ = 0;  // So much of it has no line end.
    std::string nonsense_;
};

}  // namespace amalgam::detail
