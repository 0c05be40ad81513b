// From nothing to the first answer: the time from the start of a program to its end, which makes an
// engine, looks a server up, calls it once, and ends.
//   first_answer shm|tcp            milliseconds
//   first_answer ucx+tcp|ofi+tcp    with a plug-in, which loads its library meanwhile
//   first_answer nothing            of this very program when it does nothing: the system's share
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <string_view>

#include <amalgam/rpc/engine.hpp>

#include "perf/pair.hpp"
#include "spawned.hpp"

namespace {

using namespace amalgam;

/// What is measured.
int ask(const std::string& uri, const std::string& address) {
    engine here(uri);
    return here.procedure<int(int)>("next").on(address)(1) == 2 ? 0 : 1;
}

struct way {
    std::string_view over;
    const char* server;
    const char* client;
};
// A plug-in's library says nothing of its own sockets, so its port keeps to a loopback address.
constexpr way ways[] = {{"shm", "shm://", "shm://"},
                        {"tcp", "tcp://127.0.0.1:0", "tcp://"},
                        {"ucx+tcp", "ucx+tcp://127.0.0.1:0", "ucx+tcp://127.0.0.1:0"},
                        {"ofi+tcp", "ofi+tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"}};

const way* find(std::string_view over) {
    const auto* found = std::find_if(std::begin(ways), std::end(ways),
                                     [&](const way& each) { return each.over == over; });
    return found == std::end(ways) ? nullptr : found;
}

double measure(const std::string& program, const way* over) {
    if (over == nullptr) return bench::milliseconds_of({program, "ask"});
    perf::forked_peer server([&](perf::channel& talk) {
        engine there(over->server);
        there.define("next", [](int number) { return number + 1; });
        talk.write_line(there.address());
        try {
            talk.read_line();
        } catch (const error&) {
            // The measuring process has what it wanted.
        }
    });
    return bench::milliseconds_of({program, "ask", over->client, server.talk().read_line()});
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc >= 2 ? argv[1] : "";
    try {
        if (what == "ask") return argc == 4 ? ask(argv[2], argv[3]) : 0;
        const way* const over = find(what);
        if (argc != 2 || (over == nullptr && what != "nothing")) {
            std::fprintf(stderr, "usage: %s shm|tcp|ucx+tcp|ofi+tcp|nothing\n", argv[0]);
            return 2;
        }
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], measure(argv[0], over));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s %s: %s\n", argv[0], what.c_str(), e.what());
        return 1;
    }
}
