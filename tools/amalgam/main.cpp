#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/version.hpp>

#include "commands.hpp"

namespace {

/// Error for a command without the sub-command it needs.
std::string explain_choice(const CLI::App& at, const std::string& path) {
    std::string names;
    const CLI::App* first = nullptr;
    for (const CLI::App* one : at.get_subcommands({})) {
        if (first == nullptr) first = one;
        names += (names.empty() ? "" : ", ") + one->get_name();
    }
    const auto unknown = at.remaining();
    return fmt::format(
        "{}{}; expected one of: {}; {}", path.empty() ? "" : path + ": ",
        unknown.empty() ? "no command" : fmt::format("unknown command \"{}\"", unknown.front()),
        names, path.empty() ? "example: amalgam info" : first->get_footer());
}

/// What is wrong with a command line, what was expected, and an example, which each command has as
/// the footer of its help.
std::string explain(const CLI::App& app, const CLI::ParseError& wrong) {
    const CLI::App* at = &app;
    std::string path;
    while (!at->get_subcommands().empty()) {
        at = at->get_subcommands().front();
        path += (path.empty() ? "" : " ") + at->get_name();
    }
    if (!at->get_subcommands({}).empty()) return explain_choice(*at, path);
    const std::string why = wrong.what();
    const bool has_example = why.find("example: ") != std::string::npos;
    return has_example ? fmt::format("{}: {}", path, why)
                       : fmt::format("{}: {}; {}", path, why, at->get_footer());
}

int run(int argc, char** argv) {
    CLI::App app{"Amalgam: programs that span processes and machines"};
    app.require_subcommand(1);
    app.set_version_flag("--version", amalgam::version());
    app.footer(
        "Exit codes: 0: success; 1: failure, or nothing found; 2: invalid command line. `amalgam "
        "run` exits with the code of its groups.");
    amalgam::tool::add_info(app);
    amalgam::tool::add_ping(app);
    amalgam::tool::add_call(app);
    amalgam::tool::add_perf(app);
    amalgam::tool::add_run(app);
    amalgam::tool::add_trace(app);
    amalgam::tool::add_directory(app);
    amalgam::tool::add_find(app);
    amalgam::tool::add_inject(app);
    amalgam::tool::add_key(app);
    amalgam::tool::add_stats(app);
    amalgam::tool::add_top(app);
    amalgam::tool::add_why(app);
    amalgam::tool::add_man(app);
    amalgam::tool::add_completion(app);
    try {
        std::vector<std::string> words;
        std::vector<char*> translated;
        if (amalgam::tool::is_dff_run(argv[0])) {
            words = amalgam::tool::run_of_dff_run(argc, argv);
            for (std::string& each : words)
                translated.push_back(each.data());
            argc = static_cast<int>(translated.size());
            argv = translated.data();
        }
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help or --version
        std::fprintf(stderr, "amalgam: %s\n", explain(app, e).c_str());
        return 2;
    } catch (const amalgam::tool::exit_code& code) {
        return code.value;
    } catch (const std::exception& e) {
        // For a full device fmt only says "cannot write to file"; the details follow below.
        if (std::ferror(stdout) == 0) std::fprintf(stderr, "amalgam: %s\n", e.what());
        return 1;
    }
    return 0;
}

/// Otherwise one of our pipes or sockets would take the place of a closed standard descriptor.
/// Writing to it remains an error.
void fill_standard_descriptors() {
    int nothing = 0;
    do
        nothing = ::open("/dev/null", O_RDONLY);
    while (nothing >= 0 && nothing <= STDERR_FILENO);
    if (nothing >= 0) ::close(nothing);
}

/// Commands that only ask would take the port from the programs that it was set for.
void leave_metrics_to_others(int argc, char** argv) {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command != "run" && command != "directory") ::unsetenv("AMALGAM_METRICS");
}

}  // namespace

int main(int argc, char** argv) {
    fill_standard_descriptors();
    leave_metrics_to_others(argc, argv);
    const int code = run(argc, argv);
    const bool failed = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !failed) return code;
    std::fprintf(stderr,
                 "amalgam: cannot write all output to standard output%s%s%s; example: amalgam info "
                 ">info.txt\n",
                 failed ? "" : " (", failed ? "" : std::strerror(errno), failed ? "" : ")");
    return code == 0 ? 1 : code;
}
