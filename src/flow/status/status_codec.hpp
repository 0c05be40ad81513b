#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <amalgam/core/metrics.hpp>
#include <amalgam/flow/run_status.hpp>
#include <amalgam/rpc/ult_report.hpp>

namespace amalgam::detail {

/// A snapshot as text for a control message: its encoding in hexadecimal digits.
std::string encode_metrics(const metric_snapshot& all);
/// Empty: it is malformed, as of another version.
std::optional<metric_snapshot> decode_metrics(std::string_view text);

/// The same of ULTs.
std::string encode_ults(const ult_report& all);
std::optional<ult_report> decode_ults(std::string_view text);

/// What the launcher is asked on its socket: how the run is, or about the ULTs of one process.
inline constexpr std::string_view status_question = "?";
std::string ults_question(std::string_view process);
/// The process of such a question; empty: it is none.
std::optional<std::string> process_in_question(std::string_view question);

/// What the launcher answers on its socket.
std::string encode_status(const run_status& status);
/// Failure: `invalid`, with a sentence.
result<run_status> decode_status(std::string_view bytes);

std::string encode_told_ults(const result<ult_report>& told);
/// Failure: `invalid`, or what was told.
result<ult_report> decode_told_ults(std::string_view bytes);

/// Name of the launcher's socket, in the kernel's abstract namespace: no file is left behind.
std::string status_socket_name(unsigned user, int launcher);
/// The launcher in a name of status_socket_name() for this user; 0: it is none.
int launcher_of(std::string_view name, unsigned user);

}  // namespace amalgam::detail
