#include "flow/launcher/process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "flow/launcher/remote_process.hpp"

namespace amalgam::detail {
namespace {

[[noreturn]] void no_room(const char* what, const std::string& label) {
    throw error(status{errc::no_memory, errno}, fmt::format("cannot create a {} for group {} ({})",
                                                            what, label, std::strerror(errno)));
}

std::pair<unique_fd, unique_fd> make_pipe(const std::string& label) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) no_room("pipe", label);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return {unique_fd(ends[0]), unique_fd(ends[1])};
}

/// First steps of every new process.
void begin(pid_t launcher, int out, int err) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != launcher) ::_exit(127);  // The launcher died before the line above.

    // A background process group that reads from a terminal would be stopped.
    if (::isatty(STDIN_FILENO) != 0) {
        int nothing = ::open("/dev/null", O_RDONLY);
        if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    }
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
}

bool can_run(const std::string& file) {
    struct stat found {};
    if (::stat(file.c_str(), &found) != 0) return false;
    if (S_ISDIR(found.st_mode)) {
        errno = EISDIR;
        return false;
    }
    return ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::string describe_end(int wait_status) {
    if (WIFSIGNALED(wait_status)) {
        int signal = WTERMSIG(wait_status);
        std::string word = ::strsignal(signal);
        std::transform(word.begin(), word.begin() + 1, word.begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
        return fmt::format("signal {} ({})", signal, word);
    }
    return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

int exit_code_of(int wait_status) noexcept {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

result<std::string> find_program(const std::string& name) {
    int why = ENOENT;
    if (name.find('/') != std::string::npos) {
        if (can_run(name)) return name;
        why = errno;
    } else if (!name.empty()) {
        const char* set = std::getenv("PATH");
        std::string path = set != nullptr ? set : "/usr/bin:/bin";
        for (std::size_t start = 0; start <= path.size();) {
            std::size_t end = std::min(path.find(':', start), path.size());
            std::string folder = path.substr(start, end - start);
            std::string file = (folder.empty() ? "." : folder) + "/" + name;
            if (can_run(file)) return file;
            start = end + 1;
        }
    }
    return {errc::not_found,
            fmt::format("the program \"{}\" cannot be run ({}), expected an executable file; "
                        "example: amalgam run -c config.json -- ./wordcount text.txt",
                        name, std::strerror(why))};
}

void become(const std::string& file, const std::vector<std::string>& command,
            const group_config& group, std::size_t replica) {
    for (const auto& [name, value] : group.env)
        ::setenv(name.c_str(), value.c_str(), 1);
    ::setenv("AMALGAM_GROUP", group.name.c_str(), 1);
    ::setenv("AMALGAM_REPLICA", fmt::format("{}", replica).c_str(), 1);

    std::vector<std::string> words = command;
    words.insert(words.end(), group.arguments.begin(), group.arguments.end());
    std::string start = file;
    if (!group.pre_command.empty()) {
        words.front() = file;
        start = "/bin/sh";
        words.insert(words.begin(), {"sh", "-c", group.pre_command + " \"$@\"", "sh"});
    }
    std::vector<char*> arguments;
    for (const std::string& one : words)
        arguments.push_back(const_cast<char*>(one.c_str()));
    arguments.push_back(nullptr);
    ::execv(start.c_str(), arguments.data());
    std::string why =
        fmt::format("the program \"{}\" cannot be run ({})\n", file, std::strerror(errno));
    [[maybe_unused]] auto told = ::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(126);
}

launched_process start_process(const launch_options& options, std::size_t group,
                               std::size_t replica, const std::string& file, bool shown) {
    const group_config& about = options.config.groups[group];
    const std::string host = about.host(replica);
    std::string label = process_label(about, replica);
    auto [out_here, out_there] = make_pipe(label);
    auto [err_here, err_there] = make_pipe(label);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) no_room("socket", label);
    unique_fd control_here(ends[0]);
    unique_fd control_there(ends[1]);

    pid_t self = ::getpid();
    pid_t pid = ::fork();
    if (pid < 0) no_room("process", label);
    if (pid == 0) {
        begin(self, out_there.get(), err_there.get());
        if (!host.empty()) stand_for_remote(options, group, replica, control_there.get());
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::signal(SIGPIPE, SIG_DFL);
        ::fcntl(control_there.get(), F_SETFD, 0);
        ::unsetenv("AMALGAM_METRICS");  // Of the whole run: launch_options::metrics.
        ::setenv(control_variable, fmt::format("{}", control_there.get()).c_str(), 1);
        become(file, options.command, about, replica);
    }
    ::setpgid(pid, pid);  // In both processes, because either may run first.

    return launched_process{.label = label,
                            .group = group,
                            .replica = replica,
                            .where = host.empty() ? fmt::format("pid {}", pid) : "on " + host,
                            .pid = pid,
                            .running = true,
                            .wait_status = 0,
                            .end_order = 0,
                            .out = std::move(out_here),
                            .err = std::move(err_here),
                            .out_lines = line_prefixer(shown ? label : ""),
                            .err_lines = line_prefixer(shown ? label : ""),
                            .control = std::move(control_here),
                            .talk = control_line(ends[0]),
                            .key = {},
                            .ready = false,
                            .address = {},
                            .graph = {},
                            .last_words = {},
                            .because_of_other = false};
}

}  // namespace amalgam::detail
