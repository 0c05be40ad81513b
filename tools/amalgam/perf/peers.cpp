#include "perf/peers.hpp"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/random.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/fabric/transport.hpp>

#include "perf/pair.hpp"

namespace amalgam::perf {
namespace {

constexpr int not_offered = 3;  // See benches/peers/peer.hpp.

struct outcome {
    int code;          ///< As reported by a shell.
    std::string said;  ///< On both outputs.
};

/// Runs `body` in a child process, and captures its output.
outcome run_caught(const std::function<int()>& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
        throw error(status{errc::no_memory, errno}, "cannot create a pipe for the measurement");
    unique_fd ours(ends[0]), theirs(ends[1]);
    const pid_t parent = ::getpid();
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0)
        throw error(status{errc::no_memory, errno}, "cannot create a process for the measurement");
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        ::dup2(theirs.get(), STDOUT_FILENO);
        ::dup2(theirs.get(), STDERR_FILENO);
        const int code = body();
        std::fflush(nullptr);
        ::_exit(code);
    }
    theirs.reset();
    outcome got{};
    char piece[4096];
    for (ssize_t bytes; (bytes = ::read(ours.get(), piece, sizeof piece)) != 0;)
        if (bytes > 0) got.said.append(piece, static_cast<std::size_t>(bytes));
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    got.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return got;
}

/// The last non-empty line.
std::string last_line(std::string text) {
    while (text.ends_with('\n'))
        text.pop_back();
    return text.substr(text.rfind('\n') + 1);
}

/// The line of JSON in a program's output.
std::string answer_in(const std::string& said) {
    for (std::size_t at = 0; at < said.size(); at = said.find('\n', at) + 1) {
        if (said[at] == '{') return said.substr(at, said.find('\n', at) - at);
        if (said.find('\n', at) == std::string::npos) break;
    }
    return "";
}

/// The program next to this one, or in PATH; empty if there is none.
std::string find_peer(const std::string& name) {
    namespace fs = std::filesystem;
    std::vector<fs::path> folders{fs::read_symlink("/proc/self/exe").parent_path()};
    const char* path = std::getenv("PATH");
    std::string_view rest = path != nullptr ? path : "";
    while (!rest.empty()) {
        const std::size_t end = rest.find(':');
        folders.emplace_back(rest.substr(0, end));
        rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
    for (const fs::path& folder : folders)
        if (::access((folder / name).c_str(), X_OK) == 0) return (folder / name).string();
    return "";
}

/// Replaces this process by the program named by the first word.
int become(std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words)
        arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    return 126;
}

/// The command for this measurement with two ranks, like that of benches/peers/mpi.cpp for the bare
/// library.
std::vector<std::string> as_ranks(const perf_test& test, const request& asked) {
    std::vector<std::string> words{"mpirun"};
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    for (const char* word : {"-n", "2", "--oversubscribe", "--bind-to", "none", "--mca", "pml",
                             "ob1", "--mca", "btl", "vader,self", "-x"})
        words.emplace_back(word);
    words.push_back(fmt::format("{}=amalgam-perf-{:016x}", ranks_variable, random_u64()));
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    words.insert(words.end(), {"perf", std::string(test.name), "--json", "--uri", asked.uri});
    words.insert(words.end(), {"--size", std::to_string(asked.size_bytes)});
    words.insert(words.end(), {"--depth", std::to_string(asked.depth)});
    words.insert(words.end(), {"--seconds", fmt::format("{}", asked.seconds)});
    return words;
}

int measure_by_ranks(const perf_test& test, const request& asked) {
    if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
        fmt::print(
            "amalgam perf starts mpirun itself: run it outside of mpirun; example: amalgam perf {} "
            "--uri {}\n",
            test.name, asked.uri);
        return 1;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // mpirun then ends its ranks, too.
    become(as_ranks(test, asked));
    fmt::print(
        "cannot run mpirun ({}), expected Open MPI's; example: Debian's package openmpi-bin\n",
        std::strerror(errno));
    return 1;
}

}  // namespace

measurement run_apart(const perf_test& test, const request& asked) {
    if (std::getenv(ranks_variable) != nullptr) {
        // Opening the first port waits for the other rank, which may be about to wait for us.
        (void)transport_registry::installed().open(asked.uri).value();
        return test.run(asked);
    }
    const bool needs_ranks = parse_uri(asked.uri).value().scheme == "mpi";
    const outcome got = run_caught([&] {
        if (needs_ranks) return measure_by_ranks(test, asked);
        try {
            fmt::print("{}\n", to_json(test.run(asked)));
            return 0;
        } catch (const std::exception& wrong) {
            fmt::print("{}\n", wrong.what());
            return 1;
        }
    });
    const auto measured = measurement_from_json(answer_in(got.said));
    if (got.code == 0 && measured) return *measured;
    throw error(errc::handler_failed,
                got.code == 1
                    ? last_line(got.said)
                    : fmt::format("the measurement of {} over {} failed with exit code {}: {}",
                                  test.name, asked.uri, got.code, last_line(got.said)));
}

result<measurement> run_peer(std::string_view library, std::string_view test, std::string_view over,
                             const request& asked) {
    const std::string name = fmt::format("amalgam-peer-{}", library);
    const std::string program = find_peer(name);
    if (program.empty())
        return {errc::not_found,
                fmt::format("skipping {}: no program {} beside this one or in PATH; it is built "
                            "with Amalgam if the library is installed",
                            library, name)};
    std::vector<std::string> words{program,
                                   std::string(test),
                                   std::string(over),
                                   std::to_string(asked.size_bytes),
                                   std::to_string(asked.depth),
                                   fmt::format("{}", asked.seconds)};
    // Ours are over only then.
    if (test.starts_with("put")) words.emplace_back("delivered");
    const outcome got = run_caught([&] { return become(words); });
    if (got.code == not_offered)
        return {errc::unsupported,
                fmt::format("{} does not support {} over {}", library, test, over)};
    const auto measured = measurement_from_json(answer_in(got.said));
    if (got.code == 0 && measured) return *measured;
    return {errc::handler_failed, fmt::format("{} failed to measure {} over {} (exit code {}): {}",
                                              name, test, over, got.code, last_line(got.said))};
}

std::string_view medium_of(const std::string& uri) {
    const auto parsed = parse_uri(uri);
    if (!parsed) return "";
    const std::string& protocol = parsed->protocol;
    if (parsed->scheme == "shm" || parsed->scheme == "tcp")
        return parsed->scheme == "shm" ? "shm" : "tcp";
    if (protocol.starts_with("tcp") || protocol == "sockets") return "tcp";
    // Within a host their own choice is shared memory.
    const bool within_host =
        protocol == "shm" || protocol == "sm" || protocol == "all" || parsed->scheme == "mpi";
    return within_host ? "shm" : "";
}

}  // namespace amalgam::perf
