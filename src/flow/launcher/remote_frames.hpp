#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flow/launcher/output.hpp"

namespace amalgam::detail {

/// What the launcher and its agent on a host tell each other over ssh's standard input and
/// output, in this order:
///
///     agent    -> launcher  greeting  what else a login prints comes before it
///     launcher -> agent     start     what to run, see remote_start
///     both ways             control   bytes of the control line between launcher and process
///     agent    -> launcher  out, err  what the process printed
///     launcher -> agent     signal    one byte: send it to the process
///     agent    -> launcher  refused   why nothing was started, in a sentence
///                           ended     the process has, with this status of waitpid()
///     both ways             alive     nothing else to say
///
/// A frame is its kind (1 byte), the length of what follows (4 bytes, little-endian), and that.
/// Whoever sees the other end closed, or hears nothing for long, ends too.
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

/// The version is part of it: two that differ are not fit for each other.
inline constexpr std::string_view remote_greeting = "\x01amalgam agent 1\n";

void add_frame(output_queue& into, remote_frame_kind kind, std::string_view bytes);

/// Cuts what was read into frames.
class remote_frame_reader {
public:
    /// Nobody of ours sends longer ones.
    static constexpr std::size_t max_frame_bytes = std::size_t{64} << 20;

    /// `greeting`: skips all before it, and it.
    explicit remote_frame_reader(std::string_view greeting = "") : greeting_(greeting) {}

    void feed(std::string_view bytes) { read_.append(bytes); }
    /// The next one that is there as a whole.
    std::optional<remote_frame> next();
    bool greeted() const noexcept { return greeting_.empty(); }
    /// What came was no frame; no next one will be found.
    bool nonsense() const noexcept { return nonsense_; }

private:
    std::string_view greeting_;
    std::string read_;
    bool nonsense_ = false;
};

/// What an agent is asked to start.
struct remote_start {
    std::string folder;  ///< Where it runs.
    std::string config;  ///< JSON, as to_json(flow_config)
    std::string group;   ///< Its name.
    std::size_t replica = 0;
    std::size_t silence_ms = 0;            ///< See launch_options::host_silence.
    std::vector<std::string> command;      ///< The program and its arguments.
    std::vector<std::string> environment;  ///< "NAME=value"
};

std::string encode(const remote_start& start);
/// Failure: nothing, for bytes that encode() did not make.
std::optional<remote_start> decode_remote_start(std::string_view bytes);

/// What of `environment` goes along to a host: all but what a login there sets itself (HOME …).
std::vector<std::string> carried_environment(const char* const* environment);

}  // namespace amalgam::detail
