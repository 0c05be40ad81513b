// Thallium's calls: C++ over Margo, which combines Mercury with Argobots' ULTs. Both ends poll; the
// server's progress and handlers share an execution stream, the client's are in its main one.
//   thallium latency na+sm|ofi+tcp SIZE DEPTH SECONDS    one call at a time, whatever DEPTH
//   thallium rate    na+sm|ofi+tcp SIZE DEPTH SECONDS    DEPTH calls in flight
//   thallium bulk    na+sm|ofi+tcp SIZE DEPTH SECONDS    DEPTH pulls in flight, from heap to heap
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <thallium.hpp>
#include <thallium/serialization/stl/string.hpp>

#include "peers/na_questions.hpp"

namespace {

using namespace amalgam;
namespace tl = thallium;

std::string configuration(bool progress_thread) {
    return std::string(R"({"mercury": {"na_no_block": true}, "progress_timeout_ub_msec": 0, )") +
           R"("use_progress_thread": )" + (progress_thread ? "true" : "false") +
           R"(, "rpc_thread_count": )" + (progress_thread ? "-1}" : "0}");
}

/// Exposes that memory for reading and writing.
tl::bulk expose(tl::engine& where, std::string& memory) {
    return where.expose({{memory.data(), memory.size()}}, tl::bulk_mode::read_write);
}

/// Serves until the measuring process closes the channel.
void serve(const std::string& uri, std::size_t size, perf::channel& talk) {
    tl::engine server(uri, THALLIUM_SERVER_MODE, configuration(true));
    std::string memory(size, 'y');
    {
        const tl::bulk shown = expose(server, memory);
        server.define("count", [](const tl::request& call, const std::string& bytes) {
            call.respond(static_cast<std::uint32_t>(bytes.size()));
        });
        server.define("show", [&](const tl::request& call) { call.respond(shown); });
        talk.write_line(server.self());
        try {
            talk.read_line();
        } catch (const std::exception&) {
            // The measuring process has ended, or closed the channel.
        }
    }
    server.finalize();
}

/// Keeps `depth` operations of `start()` in flight; returns completions per second.
template <typename Start>
double rate(std::size_t depth, double seconds, Start&& start) {
    std::deque<decltype(start(std::size_t{}))> open;
    for (std::size_t i = 0; i < depth; ++i)
        open.push_back(start(i));
    std::uint64_t done = 0;
    const auto run_for = [&](double time) {
        done = 0;
        const auto begin = perf::clock_type::now();
        do {
            for (std::size_t i = 0; i < depth; ++i) {
                open.front().wait();
                open.pop_front();
                open.push_back(start(i));
            }
            done += depth;
        } while (perf::seconds_since(begin) < time);
        return perf::seconds_since(begin);
    };
    run_for(seconds * 0.2);
    const double elapsed = run_for(seconds * 0.8);
    for (auto& each : open)
        each.wait();
    return static_cast<double>(done) / elapsed;
}

perf::measurement measure(tl::engine& client, const bench::na_question& asked,
                          const std::string& address) {
    const auto& [test, uri, size, depth, seconds] = asked;
    const tl::endpoint there = client.lookup(address);
    const tl::remote_procedure count = client.define("count");
    const std::string bytes(size, 'x');
    perf::measurement m;
    if (test == "latency") {
        m = perf::measure_round_trips(
            seconds, [&] { (void)count.on(there)(bytes).template as<std::uint32_t>(); });
    } else if (test == "rate") {
        m.ops_per_s =
            rate(depth, seconds, [&](std::size_t) { return count.on(there).async(bytes); });
    } else {
        const tl::bulk remote = client.define("show").on(there)();
        std::vector<std::string> memory(depth, std::string(size, '\0'));
        std::vector<tl::bulk> local;
        for (std::string& each : memory)
            local.push_back(expose(client, each));
        m.ops_per_s = rate(depth, seconds,
                           [&](std::size_t i) { return local[i].pull_from(remote.on(there)); });
    }
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    return bench::answer_na(argc, argv, "thallium", &serve,
                            [](const bench::na_question& asked, const std::string& address) {
                                tl::engine client(asked.uri, THALLIUM_CLIENT_MODE,
                                                  configuration(false));
                                const auto m = measure(client, asked, address);
                                client.finalize();
                                return m;
                            });
}
