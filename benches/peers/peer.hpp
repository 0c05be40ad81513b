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

/// A question for a bare library, asked by `amalgam perf --vs` and benches/run.py. Each library has
/// a program that answers with one line of JSON.
///
///     amalgam-peer-ucx TEST OVER SIZE DEPTH SECONDS [delivered]
///
/// TEST is message-latency, message-rate (the last of DEPTH messages is answered), put-bandwidth or
/// get-bandwidth (with the program's own memory), or put-block-bandwidth or get-block-bandwidth
/// (with memory allocated by the library); OVER is shm or tcp. With `delivered` a put is over once
/// its bytes are at the target, as ours are; without, once its memory is free. Exit code 3: not
/// supported by the library.
struct peer_question {
    std::string test;
    std::string over;
    std::size_t size = 0;
    std::size_t depth = 1;
    double seconds = 0;
    bool delivered = false;

    bool is(const char* one) const { return test == one; }
    bool messages() const { return is("message-latency") || is("message-rate"); }
    bool puts() const { return is("put-bandwidth") || is("put-block-bandwidth"); }
    bool gets() const { return is("get-bandwidth") || is("get-block-bandwidth"); }
    bool block() const { return is("put-block-bandwidth") || is("get-block-bandwidth"); }
};

constexpr int not_offered = 3;

/// Parses the command line; ends the program with a sentence if invalid.
inline peer_question peer_question_of(int argc, char** argv) {
    peer_question asked;
    const bool delivered = argc == 7 && std::string_view(argv[6]) == "delivered";
    if (argc == 6 || delivered)
        asked = {argv[1],
                 argv[2],
                 static_cast<std::size_t>(std::atoll(argv[3])),
                 static_cast<std::size_t>(std::atoll(argv[4])),
                 std::atof(argv[5]),
                 delivered};
    const bool known = asked.messages() || asked.puts() || asked.gets();
    if (!known || (asked.over != "shm" && asked.over != "tcp") || asked.depth == 0) {
        std::fprintf(stderr,
                     "usage: %s "
                     "message-latency|message-rate|put-bandwidth|get-bandwidth|put-block-bandwidth|"
                     "get-block-bandwidth shm|tcp SIZE DEPTH SECONDS [delivered]\n",
                     argv[0]);
        std::exit(2);
    }
    return asked;
}

/// Prints the result in round trips or transfers per second.
inline void print_answer(const peer_question& asked, const char* library, perf::measurement m) {
    m.test = asked.test;
    m.uri = std::string(library) + " " + asked.over;
    m.size_bytes = asked.size;
    m.depth = asked.depth;
    m.bytes_per_s =
        m.ops_per_s * static_cast<double>(asked.size) * (asked.is("message-latency") ? 2 : 1);
    std::puts(perf::to_json(m).c_str());
    std::fflush(stdout);
}

/// The main() of a peer whose two processes share a channel: runs `serve(question, channel)` in a
/// child process and `measure(question, channel)` here, and prints the result.
template <typename Serve, typename Measure>
int answer_peer(int argc, char** argv, const char* library, Serve&& serve, Measure&& measure) {
    const peer_question asked = peer_question_of(argc, argv);
    try {
        perf::forked_peer peer([&](perf::channel& talk) { serve(asked, talk); });
        print_answer(asked, library, measure(asked, peer.talk()));
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}

/// As above, for a library whose `End`s connect by each other's addresses. `measure(question, end,
/// channel)` starts once both are connected.
template <typename End, typename Serve, typename Measure>
int answer_peer_by_address(int argc, char** argv, const char* library, Serve&& serve,
                           Measure&& measure) {
    return answer_peer(
        argc, argv, library,
        [&](const peer_question& asked, perf::channel& talk) {
            End me(asked);
            talk.write_line(me.address());
            me.connect(talk.read_line());
            serve(asked, me, talk);
        },
        [&](const peer_question& asked, perf::channel& talk) {
            End me(asked);
            const std::string there = talk.read_line();
            talk.write_line(me.address());
            me.connect(there);
            return measure(asked, me, talk);
        });
}

/// Bytes as text, and back: lets a process send them in a line.
inline std::string to_hex(const void* from, std::size_t bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string hex;
    for (std::size_t i = 0; i < bytes; ++i) {
        const auto byte = static_cast<const unsigned char*>(from)[i];
        hex += digits[byte >> 4];
        hex += digits[byte & 15];
    }
    return hex;
}
inline std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    return bytes;
}

/// Calls `progress()`, which returns whether it did something, until the other process is gone.
template <typename Progress>
void serve_until_closed(perf::channel& talk, Progress&& progress) {
    for (unsigned idle = 0;;)
        if (!progress() && ++idle % (1u << 16) == 0 && talk.closed()) return;
}

}  // namespace amalgam::bench
