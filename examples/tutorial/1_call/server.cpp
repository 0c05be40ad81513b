// The shortest key-value server: texts under names, kept in memory.
//     call_server shm://kv
#include <cstdio>
#include <map>
#include <string>

#include <unistd.h>

#include <amalgam/rpc.hpp>

int main(int count, char** words) {
    if (count != 2) {
        std::fprintf(stderr, "usage: call_server URI\nexample: call_server shm://kv\n");
        return 2;
    }
    try {
        std::map<std::string, std::string> values;

        am::engine server{words[1]};
        server.define("put", [&](const std::string& name, std::string value) {
            values[name] = std::move(value);
        });
        server.define("get", [&](const std::string& name) {
            const auto found = values.find(name);
            if (found == values.end())
                throw am::error(am::errc::not_found, "there is no value \"" + name + "\"");
            return found->second;
        });

        std::printf("serving at %s\n", server.address().c_str());
        std::fflush(stdout);
        ::pause();  // until Ctrl-C
    } catch (const am::error& why) {
        std::fprintf(stderr, "call_server: %s\n", why.what());
        return 1;
    }
}
