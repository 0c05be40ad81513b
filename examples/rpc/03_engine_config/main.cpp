// An engine configured by a file. Prints the resulting configuration.
//   engine_config engine.json
#include <cstdio>
#include <exception>
#include <string>

#include <amalgam/rpc.hpp>

int main(int count, char** arguments) {
    try {
        if (count != 2) {
            throw am::error(am::errc::invalid,
                            "expected one file; example: engine_config engine.json");
        }
        am::engine server{am::load_engine_config(arguments[1]).value()};
        const auto stream = [] { return std::string(am::execution_stream::current()->name()); };
        server.define("where", stream);                        // as the file says
        server.define("where.io", stream, {.in_pool = "io"});  // in a pool of the file
        server.define("where.own", stream, {.streams = 2});    // on two streams of its own
        server.define("where.net", stream, {.run = am::handler::inline_});  // beside the ports

        am::engine client{"tcp://"};
        for (const char* name : {"where", "where.io", "where.own", "where.net"}) {
            auto where = client.procedure<std::string()>(name).on(server.address());
            std::printf("%s: %s\n", name, where().c_str());
        }
        server.set_progress({.by = am::progress_by::shared});  // takes effect immediately
        std::printf("%s\n", server.configuration().c_str());
    } catch (const std::exception& why) {
        std::fprintf(stderr, "engine_config: %s\n", why.what());
        return 1;
    }
}
