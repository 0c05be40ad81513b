// Directories and resource messages over one transport, between two processes, each pinned to a
// core and polling: `bench_directory TEST URI [SECONDS]`. Prints one JSON object, as `amalgam perf`
// does.
//   query-id, query-attribute   a query answered by the directory in the other process, which
//                               holds a million resources
//   register                    registrations there, one after the other
//   message, message-send       an 8-byte message to a resource of the other process and one back,
//                               posted or sent; message-64k: 64 KiB, posted
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;

constexpr int registered = 1'000'000;

engine_options polling(const char* name) {
    return {.name = name, .spin = always_spin};
}

/// The other process: a directory, until this one ends.
void serve(const std::string& uri, perf::channel& talk) {
    engine on(uri, polling("directory"));
    const directory_server directory(on);
    talk.write_line(on.address());
    (void)talk.read_line();
}

perf::measurement ask(const std::string& test, const std::string& uri, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) { serve(uri, talk); });
    const std::string address = peer.talk().read_line();
    engine on(uri, polling("context"));
    context here(on, {.directory = address});
    return on.run([&] {
        if (test == "register")
            return perf::measure_round_trips(seconds, [&] {
                here.add({{"type", "server"}, {"name", "one"}}).release();
            });
        resource_id middle = resource_id::none;
        for (int i = 0; i < registered; ++i) {
            resource one = here.add({{"type", "server"}, {"name", std::to_string(i)}});
            if (i == registered / 2) middle = one.id();
            one.release();
        }
        attribute_list by_name{{"name", std::to_string(registered / 3)}};
        by_name.ask("type");
        return perf::measure_round_trips(seconds, [&] {
            const auto found = test == "query-id" ? here.find(middle) : here.find(by_name);
            if (!found) throw error(errc::not_found, "a query found nothing");
        });
    });
}

/// The other process: a resource that echoes messages, until an empty one.
void echo(const std::string& uri, const std::string& test, perf::channel& talk) {
    const std::string directory = talk.read_line();
    engine on(uri, polling("echo"));
    {
        context here(on, {.directory = directory});
        const resource mine = here.add({{"type", "echo"}});
        talk.write_line("ready");
        on.run([&] {
            for (;;) {
                resource_message got = mine.receive();
                if (got.content.size() == 0) return;
                if (test == "message-send") {
                    mine.send(got.from, got.tag, got.content.bytes());
                } else {
                    mine.post(got.from, got.tag, std::move(got.content));
                }
            }
        });
    }
    talk.write_line("done");
    (void)talk.read_line();
}

perf::measurement exchange(const std::string& test, const std::string& uri, double seconds) {
    perf::forked_peer peer([&](perf::channel& talk) { echo(uri, test, talk); });
    // The directory is here, on the same engine, and idle meanwhile.
    engine on(uri, polling("context"));
    const directory_server directory(on);
    context here(on, {.directory = on.address()});
    peer.talk().write_line(on.address());
    (void)peer.talk().read_line();
    const resource mine = here.add({{"type", "asks"}});
    const std::size_t bytes = test == "message-64k" ? 65536 : 8;
    perf::measurement result = on.run([&] {
        const resource_id there = here.find({{"type", "echo"}})->id;
        message_buffer content = here.take_buffer(bytes);
        const auto measured = perf::measure_round_trips(seconds, [&] {
            if (test == "message-send") {
                mine.send(there, 1, content.bytes());
                (void)mine.receive();
            } else {
                mine.post(there, 1, std::move(content));
                content = mine.receive().content;
            }
        });
        mine.send(there, 1, const_bytes());
        return measured;
    });
    (void)peer.talk().read_line();
    result.size_bytes = bytes;
    return result;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string test = argc > 2 ? argv[1] : "";
    const bool asks = test == "query-id" || test == "query-attribute" || test == "register";
    const bool sends = test == "message" || test == "message-send" || test == "message-64k";
    if (!asks && !sends) {
        std::fprintf(stderr,
                     "usage: %s query-id|query-attribute|register|message|message-send|message-64k "
                     "URI [SECONDS]\n",
                     argv[0]);
        return 2;
    }
    const double seconds = argc > 3 ? std::atof(argv[3]) : 1;
    try {
        perf::measurement result =
            asks ? ask(test, argv[2], seconds) : exchange(test, argv[2], seconds);
        result.test = "directory-" + test;
        result.uri = argv[2];
        std::puts(perf::to_json(result).c_str());
    } catch (const error& why) {
        std::fprintf(stderr, "%s: %s\n", argv[0], why.what());
        return 1;
    }
    return 0;
}
