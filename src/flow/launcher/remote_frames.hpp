#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flow/launcher/output.hpp"

namespace amalgam::detail {

/// Frames between the launcher and its agent on a host, over ssh's standard input and output, in
/// this order:
///
///     agent    -> launcher  greeting  anything a login prints comes before it
///     launcher -> agent     start     what to run, see remote_start
///     both ways             control   bytes of the control line between launcher and process
///     agent    -> launcher  out, err  output of the process
///     launcher -> agent     signal    one byte: send it to the process
///     agent    -> launcher  refused   why nothing was started, in a sentence
///                           ended     the process has ended, with this waitpid() status
///     both ways             alive     keep-alive
///
/// A frame is its kind (1 byte), the length of its payload (4 bytes, little-endian), and the
/// payload. A side that sees the other end closed, or hears nothing for too long, ends.
enum class remote_frame_kind : std::uint8_t {
    start,
    control,
    out,
    err,
    signal,
    refused,
    ended,
    alive
};

struct remote_frame {
    remote_frame_kind kind;
    std::string bytes;
};

/// Includes the version: different versions do not work together.
inline constexpr std::string_view remote_greeting = "\x01amalgam agent 1\n";

void add_frame(output_queue& into, remote_frame_kind kind, std::string_view bytes);

/// Splits received bytes into frames.
class remote_frame_reader {
public:
    /// `greeting`: skips everything up to and including it.
    explicit remote_frame_reader(std::string_view greeting = "") : greeting_(greeting) {}

    void feed(std::string_view bytes) { read_.append(bytes); }
    /// The next complete frame.
    std::optional<remote_frame> next();
    bool greeted() const noexcept { return greeting_.empty(); }
    /// The input is malformed; no further frame will be found.
    bool nonsense() const noexcept { return nonsense_; }

private:
    std::string_view greeting_;
    std::string read_;
    bool nonsense_ = false;
};

/// The request to start a process, for an agent.
struct remote_start {
    std::string folder;  ///< Working directory.
    std::string config;  ///< JSON, as to_json(flow_config)
    std::string group;   ///< Its name.
    std::size_t replica = 0;
    std::size_t silence_ms = 0;            ///< See launch_options::host_silence.
    std::vector<std::string> command;      ///< The program and its arguments.
    std::vector<std::string> environment;  ///< "NAME=value"
};

std::string encode(const remote_start& start);
/// Failure: empty, if malformed.
std::optional<remote_start> decode_remote_start(std::string_view bytes);

/// The variables passed on to a host: all but those a login there sets itself (HOME …).
std::vector<std::string> carried_environment(const char* const* environment);

}  // namespace amalgam::detail
