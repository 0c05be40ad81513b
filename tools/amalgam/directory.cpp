#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <amalgam/directory/directory_server.hpp>
#include <amalgam/rpc/engine.hpp>

#include "commands.hpp"

namespace amalgam::tool {
namespace {

struct server_options {
    std::vector<std::string> uris{"shm://amalgam-directory"};
    std::vector<std::string> join;
    std::string broadcast;
    bool by_tree = false;
    bool detach = false;
    unsigned end_after = 0;
};

/// Goes on in a process of its own, in a session of its own; the first one ends.
void detach() {
    const pid_t child = ::fork();
    if (child == -1) throw error(errc::no_memory, "the system gives no process to detach to");
    if (child != 0) ::_exit(0);
    ::setsid();
    if (::chdir("/") != 0) throw error(errc::denied, "cannot go to the root folder");
}

void serve(const server_options& options) {
    if (options.detach) detach();
    sigset_t ends;  // Blocked before there are threads, so that they come here.
    ::sigemptyset(&ends);
    for (const int each : {SIGINT, SIGTERM})
        ::sigaddset(&ends, each);
    ::sigprocmask(SIG_BLOCK, &ends, nullptr);

    engine on(options.uris, {.name = "directory"});
    ring_options ring{.others = options.join};
    if (options.by_tree) ring.search = search_way::tree;
    if (!options.broadcast.empty()) ring.medium = open_broadcast(options.broadcast);
    const directory_server directory(on, {.ring = ring});
    for (const std::string& each : on.addresses())
        fmt::print("directory at {}\n", each);
    std::fflush(stdout);
    for (unsigned unused = 0;;) {
        const timespec second{1, 0};
        if (::sigtimedwait(&ends, nullptr, options.end_after == 0 ? nullptr : &second) != -1)
            return;
        unused = directory.contexts() == 0 ? unused + 1 : 0;
        if (options.end_after != 0 && unused >= options.end_after) return;
    }
}

}  // namespace

void add_directory(CLI::App& app) {
    auto options = std::make_shared<server_options>();
    auto* command = app.add_subcommand(
        "directory", "Serve the directory of this host until Ctrl-C; contexts find it by itself");
    command->footer(
        "AMALGAM_SECRET_FILE names the file of a secret that contexts and other directories must "
        "know, too; example: amalgam directory shm://amalgam-directory tcp://127.0.0.1:7100");
    command->add_option("uri", options->uris, "Where it listens")->capture_default_str();
    command->add_option("--join", options->join,
                        "Another directory's address: its resources are found from here, and those "
                        "of all that it knows; may be given several times");
    command->add_option("--broadcast", options->broadcast,
                        "Find other directories, and ask them, by UDP: the broadcast address of a "
                        "network, or a multicast group; example: udp://10.0.0.255:7101 or "
                        "udp://239.1.2.3:7101?interface=10.0.0.1");
    command->add_flag("--by-tree", options->by_tree,
                      "Only find others by --broadcast, and ask them by trees of calls");
    command->add_flag("--detach", options->detach, "Serve in the background");
    command
        ->add_option("--end-after", options->end_after,
                     "End when there was no context for so many seconds; 0: never")
        ->check(CLI::Range(0, 86400))
        ->capture_default_str();
    command->callback([options] { serve(*options); });
}

}  // namespace amalgam::tool
