#include "directory/server/start_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "directory/server/record.hpp"

namespace amalgam::detail {

namespace {

constexpr const char* secret_variable = "AMALGAM_SECRET_FILE";
constexpr int secret_fd = 3;  // In the child.

/// The environment of this process without that variable.
std::vector<std::string> environment_without(std::string_view variable) {
    std::vector<std::string> all;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string_view text(*each);
        if (!text.starts_with(variable) || text.substr(variable.size(), 1) != "=")
            all.emplace_back(text);
    }
    return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& each : texts)
        all.push_back(each.data());
    all.push_back(nullptr);
    return all;
}

/// Memory that only processes inheriting it can read.
unique_fd memory_of(const std::string& secret) {
    unique_fd fd(::memfd_create("amalgam-secret", MFD_CLOEXEC));
    if (!fd ||
        ::write(fd.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size()))
        throw error({errc::no_memory, errno}, "cannot create memory to pass the secret in");
    return fd;
}

}  // namespace

void start_directory(const std::string& address, const std::string& secret) {
    const char* const said = std::getenv("AMALGAM_TOOL");
    const std::string tool = said != nullptr && *said != '\0' ? said : "amalgam";
    std::vector<std::string> words{tool, "directory", "--detach", "--makes-way"};
    const auto before = directory_record().read();
    if (before && before->has_secret && secret.empty())
        throw error(
            errc::denied,
            fmt::format(
                "the directory of this host, {}, has ended and had a secret that this process does "
                "not know; name the secret's file by {}, or start the directory by hand",
                address, secret_variable));
    if (before) {
        words.insert(words.end(), before->words.begin(), before->words.end());
    } else {
        words.insert(words.end(), {"--end-after", "5", address});
    }
    std::vector<std::string> variables = environment_without(secret_variable);
    unique_fd handed_on;
    if (!secret.empty()) {
        handed_on = memory_of(secret);
        variables.push_back(fmt::format("{}=/proc/self/fd/{}", secret_variable, secret_fd));
    }
    const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    for (const int each : {0, 1, 2})
        ::posix_spawn_file_actions_addopen(&files, each, "/dev/null",
                                           each == 0 ? O_RDONLY : O_WRONLY, 0);
    if (handed_on) ::posix_spawn_file_actions_adddup2(&files, handed_on.get(), secret_fd);
    pid_t child = -1;
    const int failed =
        ::posix_spawnp(&child, tool.c_str(), &files, nullptr, arguments.data(), environment.data());
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
