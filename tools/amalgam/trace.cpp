#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/gathered_trace.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>

#include "call/shown.hpp"
#include "commands.hpp"

namespace amalgam::tool {
namespace {

struct trace_options {
    std::string file = "trace.json";
    bool writes_file = true;
    std::string otlp;
    std::vector<std::string> command;
    std::vector<std::string> from;
    double rate = 1;
    std::size_t mib = 64;
};

/// A folder that is gone at the end.
class scratch_folder {
public:
    scratch_folder() {
        const char* const set = std::getenv("TMPDIR");
        // Absolute: the program may change its folder before it records.
        path_ = std::filesystem::absolute(
            fmt::format("{}/amalgam-trace-XXXXXX", set != nullptr && *set != 0 ? set : "/tmp"));
        if (::mkdtemp(path_.data()) == nullptr) {
            throw error(errc::invalid,
                        fmt::format("cannot make a folder for what is recorded ({}: {}); expected "
                                    "TMPDIR to name a folder of yours; example: TMPDIR=/var/tmp",
                                    path_, std::strerror(errno)));
        }
    }
    scratch_folder(const scratch_folder&) = delete;
    scratch_folder& operator=(const scratch_folder&) = delete;
    ~scratch_folder() {
        std::error_code none;
        std::filesystem::remove_all(path_, none);
    }
    const std::string& path() const noexcept { return path_; }

private:
    std::string path_;
};

/// `amalgam-otlp` beside this program, or in PATH. Only it loads a library for HTTP and TLS.
std::string find_exporter() {
    std::error_code none;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
    const std::string beside = self.parent_path() / "amalgam-otlp";
    return ::access(beside.c_str(), X_OK) == 0 ? beside : "amalgam-otlp";
}

/// Sends what is recorded in some folders to a collector while it lives, and at the end what is
/// left: a process of its own.
class span_exporter {
public:
    span_exporter(const std::string& url, const std::vector<std::string>& folders) {
        std::vector<std::string> words{find_exporter(), url};
        words.insert(words.end(), folders.begin(), folders.end());
        std::vector<char*> arguments;
        for (std::string& each : words)
            arguments.push_back(each.data());
        arguments.push_back(nullptr);
        int input[2];
        if (::pipe2(input, O_CLOEXEC) != 0) throw error(errc::no_memory, std::strerror(errno));
        until_ = unique_fd(input[1]);
        const unique_fd theirs(input[0]);
        process_ = ::fork();
        if (process_ < 0) throw error(errc::no_memory, std::strerror(errno));
        if (process_ != 0) return;
        ::dup2(theirs.get(), 0);
        // It ends when the traced program has: the terminal interrupts both.
        for (const int each : {SIGINT, SIGQUIT, SIGTERM, SIGHUP})
            ::signal(each, SIG_IGN);
        ::execvp(arguments.front(), arguments.data());
        const auto why = std::string_view(
            "amalgam: no program amalgam-otlp beside this one or in PATH; it is built with Amalgam "
            "where cpp-httplib is installed; example: apt install libcpp-httplib-dev\n");
        static_cast<void>(!::write(2, why.data(), why.size()));
        ::_exit(1);
    }
    span_exporter(const span_exporter&) = delete;
    span_exporter& operator=(const span_exporter&) = delete;
    ~span_exporter() { finish(); }

    /// Its exit code: 0 if the collector has taken everything.
    int finish() {
        until_.reset();
        int how = 1;
        while (process_ > 0 && ::waitpid(process_, &how, 0) < 0 && errno == EINTR) {
        }
        process_ = -1;
        return WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    }

private:
    unique_fd until_;
    pid_t process_ = -1;
};

volatile std::sig_atomic_t program = 0;

void pass_on(int signal) {
    if (program > 0) ::kill(program, signal);
}

/// Runs it to its end. What asks this process to end asks the program, so that the trace is still
/// written; the terminal asks both.
int run_program(const trace_options& options, const std::string& folder) {
    std::vector<char*> words;
    for (const std::string& each : options.command)
        words.push_back(const_cast<char*>(each.c_str()));
    words.push_back(nullptr);
    int failed[2];
    if (::pipe2(failed, O_CLOEXEC) != 0) throw error(errc::no_memory, std::strerror(errno));
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("AMALGAM_TRACE", folder.c_str(), 1);
        ::setenv("AMALGAM_TRACE_RATE", fmt::format("{}", options.rate).c_str(), 1);
        ::setenv("AMALGAM_TRACE_MIB", fmt::format("{}", options.mib).c_str(), 1);
        ::execvp(words.front(), words.data());
        const int why = errno;
        while (::write(failed[1], &why, sizeof why) < 0 && errno == EINTR) {
        }
        ::_exit(127);
    }
    const int why_not = errno;
    ::close(failed[1]);
    int why = child < 0 ? why_not : 0;
    if (child > 0) {
        program = child;
        struct sigaction passing {};
        passing.sa_handler = &pass_on;
        passing.sa_flags = SA_RESTART;
        for (const int each : {SIGTERM, SIGHUP})
            ::sigaction(each, &passing, nullptr);
        passing.sa_handler = SIG_IGN;
        for (const int each : {SIGINT, SIGQUIT})
            ::sigaction(each, &passing, nullptr);
        ssize_t got = 0;
        while ((got = ::read(failed[0], &why, sizeof why)) < 0 && errno == EINTR) {
        }
        if (got != sizeof why) why = 0;
    }
    ::close(failed[0]);
    int how = 0;
    while (child > 0 && ::waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    program = 0;
    if (why != 0) {
        throw error(errc::invalid,
                    fmt::format("cannot start \"{}\" ({}); expected a program; example: amalgam "
                                "trace -- ./server",
                                options.command.front(), std::strerror(why)));
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

/// From here on, what asks this process to end interrupts its waiting for a reader of the trace.
/// What was recorded is removed then, as after any error.
void let_signals_interrupt() {
    struct sigaction interrupting {};
    interrupting.sa_handler = [](int) {};
    for (const int each : {SIGINT, SIGQUIT, SIGTERM, SIGHUP})
        ::sigaction(each, &interrupting, nullptr);
}

std::string aligned(const traced_process& one) {
    if (one.clock_offset.count() == 0 && one.clock_error.count() == 0) return {};
    if (one.clock_error.count() < 0) {
        return ", clock by the hosts' wall clocks: no traced call went between the hosts";
    }
    return fmt::format(", clock moved by {} us, give or take {} us",
                       one.clock_offset.count() / 1000, one.clock_error.count() / 1000 + 1);
}

void write(const std::vector<std::string>& folders, const std::string& file) {
    // A reader of standard output that ends is an error like a full disk: what was recorded is
    // removed all the same.
    ::signal(SIGPIPE, SIG_IGN);
    const gathered_trace told = write_chrome_trace(folders, file);
    for (const std::string& each : told.unreadable)
        fmt::print(stderr, "amalgam: not a trace: {}\n", shown(each, 5000));
    for (const traced_process& each : told.processes) {
        fmt::print(stderr, "amalgam: traced {} (pid {} on {}): {} records{}{}{}\n",
                   shown(each.program), each.pid, shown(each.host), each.records,
                   each.dropped == 0
                       ? std::string()
                       : fmt::format(", and {} without room: see --rate and --mib", each.dropped),
                   each.unnamed == 0
                       ? std::string()
                       : fmt::format(", {} names missing: more than some 4,000 different ones",
                                     each.unnamed),
                   aligned(each));
    }
    fmt::print(stderr, "amalgam: {} events are in {}; open it at ui.perfetto.dev\n", told.events,
               file);
}

/// What was asked to be made of what is in the folder, but for what `exporter` sends. Exit code.
int make_of(const std::vector<std::string>& folders, const trace_options& options,
            span_exporter* exporter) {
    int code = exporter != nullptr ? exporter->finish() : 0;
    if (!options.writes_file) return code;
    try {
        write(folders, options.file);
    } catch (const error& why) {
        fmt::print(stderr, "amalgam: {}\n", why.what());
        code = 1;
    }
    return code;
}

void trace(const trace_options& options) {
    if (!options.from.empty()) {
        std::optional<span_exporter> exporter;
        if (!options.otlp.empty()) exporter.emplace(options.otlp, options.from);
        if (!exporter) return write(options.from, options.file);
        throw exit_code{make_of(options.from, options, &*exporter)};
    }
    // Before the program has run for an hour.
    const std::filesystem::path whole = std::filesystem::absolute(options.file).lexically_normal();
    if (options.writes_file && options.file != "-" &&
        ::access(whole.parent_path().c_str(), W_OK | X_OK) != 0) {
        throw error(errc::invalid,
                    fmt::format("cannot write to the folder of \"{}\" ({}); expected a file in a "
                                "folder of yours; example: -o /tmp/trace.json",
                                options.file, std::strerror(errno)));
    }
    const scratch_folder folder;
    std::optional<span_exporter> exporter;
    if (!options.otlp.empty()) exporter.emplace(options.otlp, std::vector{folder.path()});
    const int code = run_program(options, folder.path());
    let_signals_interrupt();
    const int made = make_of({folder.path()}, options, exporter ? &*exporter : nullptr);
    throw exit_code{code == 0 ? made : code};
}

}  // namespace

void add_trace(CLI::App& app) {
    auto options = std::make_shared<trace_options>();
    CLI::App* sub =
        app.add_subcommand("trace", "Run a program, and write what its processes did as one trace");
    sub->footer("example: amalgam trace -o trace.json -- ./program");
    auto* output =
        sub->add_option("-o,--output", options->file,
                        "File for the trace, in Chrome's JSON format: for ui.perfetto.dev; - is "
                        "standard output")
            ->capture_default_str();
    sub->add_option("--rate", options->rate,
                    "Share of the traces that are recorded, from 0 to 1; a call that another call "
                    "has caused belongs to its trace")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    sub->add_option("--mib", options->mib, "Most MiB on disk that a process may record")
        ->check(CLI::Range(1, 16384))
        ->capture_default_str();
    sub->add_option("--otlp", options->otlp,
                    "Send spans to this collector of OTLP over HTTP, http://HOST:4318 for example, "
                    "while the program runs; env: as OTEL_EXPORTER_OTLP_ENDPOINT says. Writes no "
                    "file unless -o is given, too");
    auto* from = sub->add_option(
        "--from", options->from,
        "Run nothing: gather what processes recorded in these folders, with AMALGAM_TRACE=FOLDER");
    auto* command =
        sub->add_option("program", options->command, "After --: the program and its arguments");
    from->excludes(command);
    sub->positionals_at_end();
    sub->callback([options, output] {
        options->writes_file = options->otlp.empty() || output->count() != 0;
        if (options->command.empty() && options->from.empty()) throw CLI::RequiredError("program");
        trace(*options);
    });
}

}  // namespace amalgam::tool
