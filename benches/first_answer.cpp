// From nothing to the first answer: the time from the start of a program to its end, which makes an
// engine, looks a server up, calls it once, and ends.
//   first_answer shm|tcp    milliseconds
//   first_answer nothing    of this very program when it does nothing: the system's share
#include <cstdio>
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

double measure(const std::string& program, const std::string& over) {
    if (over == "nothing") return bench::milliseconds_of({program, "ask"});
    perf::forked_peer server([&](perf::channel& talk) {
        engine there(over == "shm" ? "shm://" : "tcp://127.0.0.1:0");
        there.define("next", [](int number) { return number + 1; });
        talk.write_line(there.address());
        try {
            talk.read_line();
        } catch (const error&) {
            // The measuring process has what it wanted.
        }
    });
    return bench::milliseconds_of({program, "ask", over + "://", server.talk().read_line()});
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc >= 2 ? argv[1] : "";
    try {
        if (what == "ask") return argc == 4 ? ask(argv[2], argv[3]) : 0;
        if (argc != 2 || (what != "shm" && what != "tcp" && what != "nothing")) {
            std::fprintf(stderr, "usage: %s shm|tcp|nothing\n", argv[0]);
            return 2;
        }
        std::printf("{\"test\": \"%s\", \"value\": %.6g}\n", argv[1], measure(argv[0], what));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s %s: %s\n", argv[0], what.c_str(), e.what());
        return 1;
    }
}
