#include <cstdio>
#include <exception>

#include <amalgam/core/status.hpp>

#include "commands.hpp"

int main(int argc, char** argv) {
    CLI::App app{"Amalgam: programs that span processes and machines"};
    app.require_subcommand(1);
    app.set_version_flag("--version", AMALGAM_VERSION);
    amalgam::tool::add_info(app);
    amalgam::tool::add_ping(app);
    amalgam::tool::add_perf(app);
    amalgam::tool::add_run(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e);
    } catch (const amalgam::tool::exit_code& code) {
        return code.value;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "amalgam: %s\n", e.what());
        return 1;
    }
    return 0;
}
