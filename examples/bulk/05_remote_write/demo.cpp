#include "demo.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core.hpp>

#include "client.hpp"
#include "local_file.hpp"
#include "server.hpp"

namespace remote_write {
namespace {

struct pipe_ends {
    am::unique_fd out, in;

    pipe_ends() {
        int both[2];
        if (::pipe2(both, O_CLOEXEC) != 0)
            throw std::runtime_error(std::string("cannot create a pipe (") + std::strerror(errno) +
                                     ")");
        out.reset(both[0]);
        in.reset(both[1]);
    }
};

/// Reads until all writers have closed.
std::string read_all(const am::unique_fd& from) {
    std::string all;
    char some[4096];
    for (;;) {
        const ssize_t got = ::read(from.get(), some, sizeof some);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return all;
        all.append(some, static_cast<std::size_t>(got));
    }
}

/// Precondition: short enough for a pipe to take it at once.
void write_all(const am::unique_fd& to, const std::string& text) {
    if (::write(to.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw std::runtime_error("the demo's first process is gone");
}

/// A process that runs `work`, and dies with this one.
pid_t start(const std::function<bool()>& work) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child < 0)
        throw std::runtime_error(std::string("cannot start a process (") + std::strerror(errno) +
                                 ")");
    if (child > 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    bool good = false;
    try {
        good = work();
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "remote_write: %s\n", failed.what());
    }
    std::fflush(nullptr);
    ::_exit(good ? 0 : 1);
}

bool ended_well(pid_t child) {
    int how = 0;
    while (::waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

/// A temporary directory, deleted with its content.
class work_directory {
public:
    work_directory() {
        std::string name =
            (std::filesystem::temp_directory_path() / "remote_write.XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr)
            throw std::runtime_error("cannot create the directory \"" + name + "\" (" +
                                     std::strerror(errno) + ")");
        path_ = name;
        std::filesystem::create_directory(path_ / "served");
    }
    work_directory(const work_directory&) = delete;
    work_directory& operator=(const work_directory&) = delete;
    ~work_directory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    std::string served() const { return path_ / "served"; }
    std::string file(const std::string& name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

void fill_with_noise(const std::string& path, std::uint64_t bytes, std::uint64_t seed) {
    const local_file file = local_file::open(path, open_mode::replace);
    std::vector<std::uint64_t> some(chunk_bytes / sizeof seed);
    for (std::uint64_t at = 0; at < bytes; at += chunk_bytes) {
        for (std::uint64_t& each : some)
            each = seed = am::mix(seed + 0x9e3779b97f4a7c15u);
        const auto all = std::as_bytes(std::span(some));
        file.write(all.first(std::min<std::uint64_t>(all.size(), bytes - at)), at);
    }
}

/// One client: sends its file and reads it back; returns its line of the table.
std::string there_and_back(client& me, const work_directory& work, unsigned number,
                           std::uint64_t bytes, bool& same) {
    const unsigned pieces = number % 2 == 0 ? 1 : 16;
    const std::string name = "file" + std::to_string(number);
    const transfer out = me.put(work.file(name), name, pieces);
    const transfer back = me.get(name, work.file(name + ".back"));
    same = out.sha256 == back.sha256 && out.bytes == bytes && back.bytes == bytes &&
           me.stat(name).bytes == bytes;
    char line[256];
    std::snprintf(line, sizeof line, "%6u %12llu %8u %10.0f %10.0f  %.16s  %s\n", number,
                  static_cast<unsigned long long>(out.bytes), pieces, out.mib_per_second(),
                  back.mib_per_second(), out.sha256.c_str(), same ? "equal" : "DIFFERENT");
    return line;
}

/// Peak memory of a process in MiB; 0 if it is gone.
double peak_memory(pid_t process) {
    std::ifstream status("/proc/" + std::to_string(process) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
    return 0;
}

}  // namespace

bool demo(const demo_options& options) {
    const work_directory work;
    pipe_ends address_pipe;
    const pid_t server = start([&] {
        address_pipe.out.reset();
        serve({.uri = options.uri, .directory = work.served()}, [&](const std::string& address) {
            write_all(address_pipe.in, address);
            address_pipe.in.reset();
        });
        return true;
    });
    address_pipe.in.reset();
    const std::string address = read_all(address_pipe.out);
    if (address.empty()) {
        ended_well(server);
        return false;  // The server has reported why.
    }

    // All start at once: all are ready when nobody holds `ready` open, and start when nobody holds
    // `go` open.
    pipe_ends ready, go;
    std::vector<pipe_ends> lines(options.clients);
    std::vector<pid_t> clients;
    for (unsigned i = 0; i < options.clients; ++i) {
        clients.push_back(start([&] {
            go.in.reset();
            const std::uint64_t bytes = options.bytes + i;  // So that the last chunk is partial.
            fill_with_noise(work.file("file" + std::to_string(i)), bytes, i + 1);
            client me(address);
            ready.in.reset();
            read_all(go.out);
            bool same = false;
            write_all(lines[i].in, there_and_back(me, work, i, bytes, same));
            return same;
        }));
        lines[i].in.reset();
    }
    ready.in.reset();
    read_all(ready.out);
    go.in.reset();

    std::printf("%6s %12s %8s %10s %10s  %-16s\n", "client", "bytes", "segments", "put MiB/s",
                "get MiB/s", "SHA-256 begins");
    bool all_equal = true;
    for (unsigned i = 0; i < options.clients; ++i) {
        const std::string line = read_all(lines[i].out);
        const bool equal = ended_well(clients[i]);
        all_equal = all_equal && equal;
        std::printf("%s", !line.empty() ? line.c_str() : (std::to_string(i) + " failed\n").c_str());
    }
    std::printf("the server used %.1f MiB of memory at most\n", peak_memory(server));
    ::kill(server, SIGTERM);
    return ended_well(server) && all_equal;
}

}  // namespace remote_write
