// Cost of an 8-byte message to a resource, sent or posted, and of injected code in a one-way
// message, over shared memory. Both ends run in one thread, so that count_instructions sees all of
// it and nothing else.
//   messages send|post|exchange|injected|injected-always [SECONDS|OPERATIONSx]    ns for one
// exchange: one posted, and one back, between two ULTs that wait for them.
#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>

#include "pair_in_one_thread.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
using bench::calls;
using bench::calls_each;
using bench::pair_in_one_thread;

constexpr const char* shm = "shm://";
constexpr const char* eight_bytes = "8 bytes.";

/// A context with a resource at each end; the directory is the server's.
struct resources_in_one_thread {
    resources_in_one_thread() {
        open(both.client, at_client, mine);
        open(both.server, at_server, theirs);
    }
    ~resources_in_one_thread() {
        close(both.client, at_client, mine);
        close(both.server, at_server, theirs);
    }
    void open(engine& on, std::optional<context>& at, std::optional<resource>& one) {
        both.in_ult_of(on, [&] {
            at.emplace(on, context_options{.directory = both.server.address()});
            one.emplace(at->add({}));
        });
    }
    void close(engine& on, std::optional<context>& at, std::optional<resource>& one) {
        both.in_ult_of(on, [&] {
            one.reset();
            at.reset();
        });
    }
    void receive_all() {
        for (std::size_t got = 0; got < calls; ++got)
            both.drive_until([&] { return theirs->try_receive().has_value(); });
    }

    pair_in_one_thread both{shm};
    directory_server directory{both.server};
    std::optional<context> at_client, at_server;
    std::optional<resource> mine, theirs;
};

double send(const bench::length& how_long) {
    resources_in_one_thread here;
    const resource_id to = here.theirs->id();
    return how_long.nanoseconds_each(calls, [&] {
        here.both.in_callers([&] {
            for (std::size_t i = 0; i < calls_each; ++i)
                here.mine->send(to, 0, eight_bytes);
        });
        here.receive_all();
    });
}

double post(const bench::length& how_long) {
    resources_in_one_thread here;
    const resource_id to = here.theirs->id();
    return how_long.nanoseconds_each(calls, [&] {
        here.both.in_ult_of(here.both.client, [&] {
            for (std::size_t i = 0; i < calls; ++i)
                here.mine->post(to, 0, eight_bytes);
        });
        here.receive_all();
    });
}

/// A message there and one back, each to a ULT that waits for it.
double exchange(const bench::length& how_long) {
    resources_in_one_thread here;
    const resource_id to = here.theirs->id();
    const future<void> echoes = here.both.server.spawn([&] {
        for (;;) {
            const resource_message got = here.theirs->receive();
            if (got.content.size() == 0) return;
            here.theirs->post(got.from, got.tag, got.content.bytes());
        }
    });
    const double each = how_long.nanoseconds_each(calls, [&] {
        here.both.in_ult_of(here.both.client, [&] {
            for (std::size_t i = 0; i < calls; ++i) {
                here.mine->post(to, 0, eight_bytes);
                (void)here.mine->receive();
            }
        });
    });
    here.both.in_ult_of(here.both.client, [&] { here.mine->post(to, 0, const_bytes()); });
    here.both.drive_until([&] { return echoes.ready(); });
    return each;
}

double injected(shipping ships, const bench::length& how_long) {
    pair_in_one_thread both(shm);
    std::size_t ran = 0;
    injection_options options;
    options.allows.unsigned_too = true;
    options.target_args = &ran;
    options.exports["count_message"] =
        reinterpret_cast<void*>(+[](void* count) { ++*static_cast<std::size_t*>(count); });
    options.run = handler::inline_;
    const injection_target target(both.server, std::move(options));
    injector source(both.client);
    const injection message =
        source.add(code_image::load(AMALGAM_BENCH_IMAGES "/count.image")).create(8, ships);
    const peer there = both.there();
    std::size_t sent = 0;
    return how_long.nanoseconds_each(calls, [&] {
        for (std::size_t i = 0; i < calls; ++i)
            message.post(there);
        sent += calls;
        both.drive_until([&] { return ran == sent; });
    });
}

}  // namespace

int main(int argc, char** argv) {
    using bench::length;
    constexpr std::array<bench::question, 5> known{{
        {"send", send},
        {"post", post},
        {"exchange", exchange},
        {"injected", [](const length& l) { return injected(shipping::once, l); }},
        {"injected-always", [](const length& l) { return injected(shipping::always, l); }},
    }};
    return bench::answer_one(argc, argv, known);
}
