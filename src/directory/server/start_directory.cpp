#include "directory/server/start_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#include "directory/server/record.hpp"

namespace amalgam::detail {

namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& each : texts)
        all.push_back(each.data());
    all.push_back(nullptr);
    return all;
}

}  // namespace

void start_directory(const std::string& address) {
    const char* const said = std::getenv("AMALGAM_TOOL");
    const std::string tool = said != nullptr && *said != '\0' ? said : "amalgam";
    std::vector<std::string> words{tool, "directory", "--detach", "--makes-way"};
    const auto before = directory_record().read();
    if (before) {
        words.insert(words.end(), before->begin(), before->end());
    } else {
        words.insert(words.end(), {"--end-after", "5", address});
    }
    const std::vector<char*> arguments = pointers_to(words);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    for (const int each : {0, 1, 2})
        ::posix_spawn_file_actions_addopen(&files, each, "/dev/null",
                                           each == 0 ? O_RDONLY : O_WRONLY, 0);
    pid_t child = -1;
    const int failed =
        ::posix_spawnp(&child, tool.c_str(), &files, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&files);
    int how = 0;
    if (failed == 0)  // The child exits as soon as it has detached itself.
        while (::waitpid(child, &how, 0) == -1 && errno == EINTR) {
        }
    if (failed == 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0) return;
    throw error(
        {errc::unreachable, failed},
        fmt::format(
            "no directory runs at {}, and {} could not start one ({}); start it by hand, put "
            "amalgam on the PATH, or name it by AMALGAM_TOOL; example: amalgam directory",
            address, tool, failed != 0 ? std::strerror(failed) : "it failed at once"));
}

}  // namespace amalgam::detail
