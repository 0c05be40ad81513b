#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <amalgam/rpc/engine.hpp>

namespace amalgam::bench {

/// Several calls in flight, so that empty polls weigh little.
inline constexpr std::size_t callers = 20;
inline constexpr std::size_t calls_each = 50;
inline constexpr std::size_t calls = callers * calls_each;

/// Two engines driven by one thread: an instruction counter sees both and nothing else.
struct pair_in_one_thread {
    explicit pair_in_one_thread(const std::string& uri, const engine_options& how = {})
        : server(uri, driven(how)), client(uri, driven(how)) {}

    static engine_options driven(engine_options how) {
        how.progress.by = progress_by::caller;
        return how;
    }

    template <typename Done>
    void drive_until(Done done) {
        while (!done()) {
            client.progress();
            server.progress();
        }
    }
    /// Runs `work()` in each of several ULTs of the client.
    template <typename Work>
    void in_callers(Work work) {
        std::vector<future<void>> all;
        for (std::size_t i = 0; i < callers; ++i)
            all.push_back(client.spawn(work));
        for (future<void>& each : all) {
            drive_until([&] { return each.ready(); });
            each.get();
        }
    }
    /// Runs `work()` in a ULT of one of the two.
    template <typename Work>
    void in_ult_of(engine& which, Work work) {
        future<void> done = which.spawn(work);
        drive_until([&] { return done.ready(); });
        done.get();
    }
    peer there() { return client.lookup(server.address()); }

    engine server;
    engine client;
};

}  // namespace amalgam::bench
