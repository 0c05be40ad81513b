#pragma once

#include <string_view>

#include <amalgam/core/result.hpp>

/// Turns an exception of user code, of any type, into a failure of the one call concerned. Call
/// these in a catch block.
namespace amalgam::detail {

/// For exceptions before a call is sent, such as from serializing an argument: an amalgam::error
/// unchanged, no_memory, or `otherwise` with "`what` threw: …".
failure thrown_here(std::string_view what, errc otherwise = errc::invalid) noexcept;
/// For exceptions while serving a call: handler_failed, with the message; see
/// status::handler_code().
failure thrown_there(std::string_view what) noexcept;
/// If there is no call left to fail: logs an error.
void log_thrown(std::string_view what, std::string_view procedure) noexcept;
/// The same for a function that belongs to no call, of that layer.
void log_thrown_in(std::string_view layer, std::string_view what) noexcept;

}  // namespace amalgam::detail
