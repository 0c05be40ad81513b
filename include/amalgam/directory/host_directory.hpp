#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amalgam {

/// Address of the directory shared by a user's processes on one host.
inline constexpr std::string_view host_directory = "shm://amalgam-directory";

/// Records how this host's directory was started: the arguments of `amalgam directory`. A context
/// that finds none running restarts it with them, however it ended. They are stored in a private
/// file of the user in /dev/shm, until forget_host_directory() or a reboot.
///
/// Failure: if the file cannot be written, logs it and records nothing.
void remember_host_directory(const std::vector<std::string>& words) noexcept;

/// The directory has ended for good: a context that finds none starts one without arguments.
void forget_host_directory() noexcept;

/// Reply to a request to make way for another directory.
enum class makes_way : unsigned char {
    yes,  ///< It ends; the name is free shortly.
    /// It stays: it was not started by a context, its engine does not allow the call, or its
    /// directory_options::on_make_way threw.
    no,
    nobody  ///< No directory answered there.
};

/// Asks the directory at that address on this host to end; one started by a context does.
/// Parks.
///
/// Failure: throws error{invalid} for a malformed address. Anything else that prevents asking is
///          logged, and the reply is `nobody`.
makes_way ask_to_make_way(const std::string& address);

}  // namespace amalgam
