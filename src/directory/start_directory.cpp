#include "directory/start_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <amalgam/core/status.hpp>

namespace amalgam::detail {

void start_directory(const std::string& address) {
    const char* const said = std::getenv("AMALGAM_TOOL");
    std::string tool = said != nullptr && *said != '\0' ? said : "amalgam";
    std::string words[] = {tool, "directory", "--detach", "--end-after", "5", address};
    char* arguments[std::size(words) + 1] = {};
    for (std::size_t i = 0; i < std::size(words); ++i)
        arguments[i] = words[i].data();

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    for (const int each : {0, 1, 2})
        ::posix_spawn_file_actions_addopen(&files, each, "/dev/null",
                                           each == 0 ? O_RDONLY : O_WRONLY, 0);
    pid_t child = -1;
    const int failed = ::posix_spawnp(&child, tool.c_str(), &files, nullptr, arguments, environ);
    ::posix_spawn_file_actions_destroy(&files);
    int how = 0;
    if (failed == 0)  // It ends as soon as it has detached itself.
        while (::waitpid(child, &how, 0) == -1 && errno == EINTR) {
        }
    if (failed == 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0) return;
    throw error(
        {errc::unreachable, failed},
        fmt::format("no directory runs at {}, and {} could not start one ({}): start it "
                    "by hand, put amalgam on the PATH, or name it by AMALGAM_TOOL; "
                    "example: amalgam directory",
                    address, tool, failed != 0 ? std::strerror(failed) : "it failed at once"));
}

}  // namespace amalgam::detail
