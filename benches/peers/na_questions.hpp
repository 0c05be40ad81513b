#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace amalgam::bench {

/// Questions for peers on Mercury's network abstraction.
struct na_question {
    std::string test;  ///< latency, rate or bulk.
    std::string uri;
    std::size_t size;
    std::size_t depth;
    double seconds;
};

/// The main() of such a peer: runs `serve(uri, size, channel)` in a child process and
/// `measure(question, address)` here, and prints the result.
template <typename Serve, typename Measure>
int answer_na(int argc, char** argv, const char* library, Serve&& serve, Measure&& measure) {
    const std::string_view test = argc == 6 ? argv[1] : "";
    if (test != "latency" && test != "rate" && test != "bulk") {
        std::fprintf(stderr, "usage: %s latency|rate|bulk na+sm|ofi+tcp SIZE DEPTH SECONDS\n",
                     argv[0]);
        return 2;
    }
    const std::string protocol = argv[2];
    const na_question asked{std::string(test),
                            protocol.ends_with("tcp") ? protocol + "://127.0.0.1" : protocol,
                            static_cast<std::size_t>(std::atoll(argv[3])),
                            static_cast<std::size_t>(std::atoll(argv[4])), std::atof(argv[5])};
    try {
        perf::forked_peer peer([&](perf::channel& talk) { serve(asked.uri, asked.size, talk); });
        perf::measurement m = measure(asked, peer.talk().read_line());
        m.test = asked.test;
        m.uri = std::string(library) + " " + protocol;
        m.size_bytes = asked.size;
        m.depth = asked.depth;
        m.bytes_per_s = m.ops_per_s * static_cast<double>(asked.size);
        std::puts(perf::to_json(m).c_str());
        std::fflush(stdout);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}

}  // namespace amalgam::bench
