#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>

#include <amalgam/core/status.hpp>

#include "commands.hpp"

namespace {

/// What is wrong with a command line, what was expected, and an example: each command has one as
/// the footer of its help.
std::string explain(const CLI::App& app, const CLI::ParseError& wrong) {
    const auto chosen = app.get_subcommands();
    if (!chosen.empty())
        return fmt::format("{}: {}; {}", chosen.front()->get_name(), wrong.what(),
                           chosen.front()->get_footer());
    std::string names;
    for (const CLI::App* one : app.get_subcommands({}))
        names += (names.empty() ? "" : ", ") + one->get_name();
    const auto unknown = app.remaining();
    return fmt::format("{}; expected one of: {}; example: amalgam info",
                       unknown.empty() ? "no command was given"
                                       : fmt::format("there is no command \"{}\"", unknown.front()),
                       names);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Amalgam: programs that span processes and machines"};
    app.require_subcommand(1);
    app.set_version_flag("--version", AMALGAM_VERSION);
    amalgam::tool::add_info(app);
    amalgam::tool::add_ping(app);
    amalgam::tool::add_perf(app);
    amalgam::tool::add_run(app);
    amalgam::tool::add_directory(app);
    amalgam::tool::add_find(app);
    amalgam::tool::add_inject(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (e.get_exit_code() == 0) return app.exit(e);  // --help or --version
        std::fprintf(stderr, "amalgam: %s\n", explain(app, e).c_str());
        return e.get_exit_code();
    } catch (const amalgam::tool::exit_code& code) {
        return code.value;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "amalgam: %s\n", e.what());
        return 1;
    }
    return 0;
}
