#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <amalgam/core/unique_fd.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/fabric/credentials.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "commands.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

struct server_options {
    std::vector<std::string> uris{std::string(host_directory)};
    std::vector<std::string> join;
    std::string broadcast;
    bool by_tree = false;
    bool detach = false;
    bool json = false;
    unsigned end_after = 0;
    double silence_s = 10;
    bool makes_way = false;
    std::vector<std::string> members, contexts, readers;
    std::vector<std::pair<std::string, std::string>> owners_of;  // An attribute, and one owner.
};

/// "node7", "group:compute" or "uid:1000". Empty: the list is not given.
std::optional<allow_list> list_of(const std::vector<std::string>& words) {
    if (words.empty()) return std::nullopt;
    allow_list all;
    for (const std::string& each : words) {
        if (each.starts_with("group:")) {
            all.groups.push_back(each.substr(6));
        } else if (each.starts_with("uid:")) {
            std::uint32_t uid = 0;
            const char* const end = each.data() + each.size();
            if (const auto read = std::from_chars(each.data() + 4, end, uid);
                read.ec != std::errc() || read.ptr != end)
                throw error(errc::invalid,
                            fmt::format("\"{}\" is not a user, expected its number; example: "
                                        "uid:1000",
                                        each));
            all.uids.push_back(uid);
        } else {
            all.names.push_back(each);
        }
    }
    return all;
}

std::string refusal_of_list(const std::string& word) {
    try {
        (void)list_of({word});
        return {};
    } catch (const error& why) {
        return why.what();
    }
}

/// "type=database" has a value; "type" is of any.
attribute_owners owners_of(const std::string& attribute) {
    const std::size_t equals = attribute.find('=');
    if (equals == std::string::npos) return {.name = attribute};
    return {.name = attribute.substr(0, equals), .value = attribute.substr(equals + 1)};
}

std::string refusal_of_attribute(const std::string& word) {
    const std::size_t bytes = owners_of(word).name.size();
    if (bytes != 0 && bytes <= attribute_list::max_name_bytes) return {};
    return fmt::format(
        "\"{}\" names no attribute, expected NAME=VALUE or NAME, of 1 to {} bytes; example: "
        "type=database",
        word, attribute_list::max_name_bytes);
}

/// Words about the same attribute make one list.
std::vector<attribute_owners> all_owners(
    const std::vector<std::pair<std::string, std::string>>& words) {
    std::map<std::string, std::vector<std::string>> by_attribute;
    for (const auto& [attribute, who] : words)
        by_attribute[attribute].push_back(who);
    std::vector<attribute_owners> all;
    for (const auto& [attribute, who] : by_attribute)
        all.emplace_back(owners_of(attribute)).who = *list_of(who);
    return all;
}

/// Those of the first URI that names some; null: none does.
std::shared_ptr<const credentials> credentials_in(const std::vector<std::string>& uris) {
    for (const std::string& each : uris)
        if (const uri parsed = uri::parse(each); const auto folder = parsed.option("credentials"))
            return credentials::from_folder(std::string(*folder));
    return nullptr;
}

/// Exits as the directory in the background tells: with 0 once it serves, else with its exit code.
[[noreturn]] void exit_with(pid_t background, int told) {
    char ready = 0;
    while (::read(told, &ready, 1) == -1 && errno == EINTR) {
    }
    if (ready != 0) ::_exit(0);
    int how = 0;
    while (::waitpid(background, &how, 0) == -1 && errno == EINTR) {
    }
    ::_exit(WIFEXITED(how) ? WEXITSTATUS(how) : 1);
}

/// Continues in a new process, in its own session; the first process exits, at once or (with
/// `waits`) when `ready()` was called on the result or the new process has ended.
class background {
public:
    explicit background(bool waits) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            throw error(errc::no_memory, "out of file descriptors to detach");
        const unique_fd told(ends[0]);
        tell_.reset(ends[1]);
        const pid_t child = ::fork();
        if (child == -1) throw error(errc::no_memory, "cannot create a process to detach to");
        if (child != 0) {
            if (!waits) ::_exit(0);
            tell_.reset();
            exit_with(child, told.get());
        }
        ::setsid();
        if (::chdir("/") != 0) throw error(errc::denied, "cannot change to the root directory");
    }
    /// Lets go of the input and output of who started it, too: they may wait for its end.
    void ready() {
        const unique_fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
        for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
            (void)::dup2(nothing.get(), each);
        (void)::send(tell_.get(), "1", 1, MSG_NOSIGNAL);  // Who started it may be gone.
        tell_.reset();
    }

private:
    unique_fd tell_;
};

bool is_of_host(const server_options& options) {
    return std::find(options.uris.begin(), options.uris.end(), host_directory) !=
           options.uris.end();
}

/// The arguments a context needs to restart this directory.
std::vector<std::string> words_of(const server_options& options) {
    std::vector<std::string> words = options.uris;
    const auto add = [&](const char* option, const std::string& value) {
        words.insert(words.end(), {option, value});
    };
    for (const std::string& each : options.join)
        add("--join", each);
    if (!options.broadcast.empty()) add("--broadcast", options.broadcast);
    if (options.by_tree) words.emplace_back("--by-tree");
    if (options.end_after != 0) add("--end-after", std::to_string(options.end_after));
    add("--silence", fmt::format("{}", options.silence_s));
    for (const auto& [option, list] :
         {std::pair("--members", &options.members), std::pair("--contexts", &options.contexts),
          std::pair("--readers", &options.readers)})
        for (const std::string& each : *list)
            add(option, each);
    for (const auto& [attribute, who] : options.owners_of)
        words.insert(words.end(), {"--owners-of", attribute, who});
    return words;
}

/// If a context has started a directory here meanwhile, that one makes way.
std::unique_ptr<engine> open_engine(const server_options& options) {
    int most_attempts = 50;  // If nobody answers, something else has the address.
    std::unique_ptr<engine> on;
    for (int attempts = 0; on == nullptr; ++attempts) {
        try {
            on = std::make_unique<engine>(options.uris, engine_options{.name = "directory"});
        } catch (const error& why) {
            if (why.code() != errc::in_use || options.makes_way || !is_of_host(options)) throw;
            const makes_way answer = ask_to_make_way(std::string(host_directory));
            if (answer == makes_way::no)
                throw error(errc::in_use,
                            fmt::format("{}; a directory that was started by hand is "
                                        "already running at {}: stop it first (kill the process)",
                                        why.what(), host_directory));
            if (answer == makes_way::yes) most_attempts = 500;
            if (attempts >= most_attempts) throw;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    return on;
}

/// Credentials at a relative path are those of the folder that the tool was started in, also once
/// it has detached, or is started again from elsewhere.
std::string with_absolute_credentials(const std::string& address) {
    uri parsed = uri::parse(address);
    bool any = false;
    for (uri_option& each : parsed.options) {
        const bool is_path =
            each.value.find('/') != std::string::npos || each.value == "." || each.value == "..";
        if (each.key != "credentials" || !is_path) continue;
        each.value = std::filesystem::absolute(each.value).lexically_normal();
        any = true;
    }
    return any ? to_string(parsed) : address;
}

void serve(const server_options& options) {
    std::optional<background> detached;
    if (options.detach) detached.emplace(!options.makes_way);
    sigset_t ends;  // Blocked before threads exist, so that they are delivered here.
    ::sigemptyset(&ends);
    for (const int each : {SIGINT, SIGTERM})
        ::sigaddset(&ends, each);
    ::sigprocmask(SIG_BLOCK, &ends, nullptr);

    const std::unique_ptr<engine> on = open_engine(options);
    ring_options ring{.others = options.join};
    if (options.by_tree) ring.search = search_way::by_tree;
    if (!options.broadcast.empty()) {
        ring.medium = open_broadcast(options.broadcast);
        ring.trust = credentials_in(options.uris);
    }
    directory_options how{
        .ring = ring,
        .roles = {.members = list_of(options.members),
                  .contexts = list_of(options.contexts),
                  .readers = list_of(options.readers),
                  .owners_of = all_owners(options.owners_of)},
        .silence = std::chrono::milliseconds(static_cast<long>(options.silence_s * 1000))};
    if (options.makes_way) how.on_make_way = [] { (void)::kill(::getpid(), SIGTERM); };
    const directory_server directory(*on, how);
    offer_metrics(*on, allow_list{.uids = {static_cast<std::uint32_t>(::geteuid())}});
    if (is_of_host(options) && !options.makes_way) {
        remember_host_directory(words_of(options));
    }
    if (options.json)
        print_json({{"addresses", on->addresses()}, {"pid", ::getpid()}});
    else
        for (const std::string& each : on->addresses())
            fmt::print("directory at {}\n", each);
    std::fflush(stdout);
    if (detached) detached->ready();
    for (unsigned unused = 0;;) {
        const timespec second{1, 0};
        const int ended =
            ::sigtimedwait(&ends, nullptr, options.end_after == 0 ? nullptr : &second);
        if (ended == SIGTERM) return;
        unused = directory.contexts() == 0 ? unused + 1 : 0;
        const bool is_unused = options.end_after != 0 && unused >= options.end_after;
        if (ended != SIGINT && !is_unused) continue;
        if (is_of_host(options)) forget_host_directory();
        return;
    }
}

}  // namespace

void add_directory(CLI::App& app) {
    auto options = std::make_shared<server_options>();
    auto* command =
        app.add_subcommand("directory",
                           "Run this host's directory until Ctrl-C; contexts find it "
                           "automatically, and restart it with the same options if it is lost");
    command->footer(
        "example: amalgam directory shm://amalgam-directory "
        "\"tcp+tls://10.0.0.7:7100?credentials=node7\" --members group:directories --contexts "
        "group:compute --contexts uid:1000");
    command->add_option("uri", options->uris, "URIs to listen on")
        ->check(CLI::Validator(&refusal_of_address, ""))
        ->capture_default_str();
    command
        ->add_option("--join", options->join,
                     "Address of another directory, whose resources can be found from here, as "
                     "can those of all directories it knows; may be repeated")
        ->check(CLI::Validator(&refusal_of_address, ""));
    command->add_option(
        "--broadcast", options->broadcast,
        "Find and query other directories by UDP: a network's broadcast address, or a multicast "
        "group; example: udp://10.0.0.255:7101 or udp://239.1.2.3:7101?interface=10.0.0.1");
    command->add_flag(
        "--by-tree", options->by_tree,
        "Use --broadcast only to find other directories, and query them by trees of calls");
    command->add_flag("--detach", options->detach,
                      "Run in the background: return once it serves; its log is dropped then");
    add_json(*command, options->json)
        ->description("Print where it serves, and its process id, as JSON");
    command->add_flag("--makes-way", options->makes_way,
                      "Exit when another directory is started on this host, and do not record this "
                      "one for a restart: used by contexts that find no directory");
    command
        ->add_option("--end-after", options->end_after,
                     "Exit after this many seconds without a context; 0: never")
        ->check(CLI::Range(0, 86400))
        ->capture_default_str();
    command
        ->add_option(
            "--silence", options->silence_s,
            "Seconds after which a process that does not answer is considered gone; 0: never")
        ->check(seconds(0, 86400))
        ->capture_default_str();
    const auto add_role = [&](const char* option, std::vector<std::string>& list,
                              const std::string& what) {
        command
            ->add_option(option, list, what + ": a name, group:NAME or uid:NUMBER; may be repeated")
            ->check(CLI::Validator(&refusal_of_list, ""))
            ->expected(1)
            ->allow_extra_args(false)  // What follows is a URI.
            ->take_all();
    };
    add_role("--members", options->members,
             "Which other directories may join this one, and are believed; without it, who may "
             "register");
    add_role("--contexts", options->contexts,
             "Which processes may register resources; without it, who may search");
    add_role("--readers", options->readers, "Which processes may only search; without it, all");
    command
        ->add_option("--owners-of", options->owners_of,
                     "An attribute, NAME=VALUE or NAME for whatever value, and who of those that "
                     "may register resources may give it to them: a name, group:NAME or "
                     "uid:NUMBER; may be repeated; example: --owners-of type=database "
                     "group:databases")
        ->type_name("ATTRIBUTE WHO")
        ->check(CLI::Validator(&refusal_of_attribute, "").application_index(0))
        ->check(CLI::Validator(&refusal_of_list, "").application_index(1))
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
    command->callback([options] {
        for (std::string& each : options->uris)
            each = with_absolute_credentials(each);
        serve(*options);
    });
}

}  // namespace amalgam::tool
