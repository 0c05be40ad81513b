#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace amalgam {

/// The address of the directory that the processes of a host and user share.
inline constexpr std::string_view host_directory = "shm://amalgam-directory";

/// Keeps how this host's directory was started: the words of `amalgam directory` without its name.
/// A context that finds none starts it again so, however it ended. They lie in a file of the user's
/// in /dev/shm that nobody else reads, until forget_host_directory() or the next start of the
/// machine; of a secret only that there is one.
///
/// Failure: without such a file it is as if nothing was kept, which is logged.
void remember_host_directory(const std::vector<std::string>& words, bool has_secret) noexcept;

/// It has ended for good: a context that finds none starts a bare one.
void forget_host_directory() noexcept;

/// What came of asking a directory to make way for another one.
enum class makes_way : unsigned char {
    yes,    ///< It ends: the name is free in a moment.
    no,     ///< It was not started by a context, and stays.
    nobody  ///< None was there who could be asked.
};

/// Asks the directory at that address of this host to end, as one that a context started does.
/// `secret`: as directory_options::secret. Parks.
makes_way ask_to_make_way(const std::string& address, const std::string& secret = {});

}  // namespace amalgam
