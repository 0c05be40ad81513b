#pragma once

#include <string_view>

#include <amalgam/core/result.hpp>

/// What became of a user's function that threw. To be called in a catch block: any type of
/// exception ends as a failure of the one call that it belongs to.
namespace amalgam::detail {

/// Before a call was sent, such as by the serialization of an argument: an amalgam::error as it is,
/// no_memory, or `otherwise` with "`what` threw: …".
failure thrown_here(std::string_view what, errc otherwise = errc::invalid) noexcept;
/// By what serves a call: handler_failed, with what was thrown; see status::handler_code().
failure thrown_there(std::string_view what) noexcept;
/// Where there is no call any more that could fail: an error in the log.
void log_thrown(std::string_view what, std::string_view procedure) noexcept;

}  // namespace amalgam::detail
