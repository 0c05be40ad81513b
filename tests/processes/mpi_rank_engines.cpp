// Engines of the ranks of mpi_ranks.
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include <unistd.h>

#include <amalgam/bulk/expose.hpp>
#include <amalgam/fabric/temporary_key.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/tasks/event.hpp>

#include "processes/mpi_ranks.hpp"

namespace amalgam::processes {

namespace {

using numbers = std::vector<std::uint64_t>;

bool is_stopped(int process) {
    std::ifstream stat("/proc/" + std::to_string(process) + "/stat");
    std::string number, name;
    char state = '?';
    stat >> number >> name >> state;
    return state == 'T';
}

}  // namespace

void call(int own, int size) {
    std::vector<std::byte> read_only = pattern(served_bytes, static_cast<std::uint64_t>(own));
    std::vector<std::vector<std::byte>> written(static_cast<std::size_t>(size),
                                                std::vector<std::byte>(served_bytes));
    std::atomic<int> content = 0;
    event all_content;

    engine here(own_uri);
    const exposed shown = expose(here, read_only, access::read);
    std::vector<exposed> writable;
    for (auto& each : written)
        writable.push_back(expose(here, each, access::write));
    here.define("sum", [](int a, int b) { return a + b; });
    here.define("echo", [](std::vector<std::byte> bytes) { return bytes; });
    here.define("read", [&] { return shown.descriptor(); });
    here.define("write",
                [&](int who) { return writable[static_cast<std::size_t>(who)].descriptor(); });
    here.define("content", [&] {
        if (++content == size - 1) all_content.set();
    });
    // Last: implies all others.
    here.define("is_ready", [] { return true; });

    for (int other = 0; other < size; ++other) {
        if (other == own) continue;
        const peer there = here.lookup(address_of(other));
        while (!here.procedure<bool()>("is_ready").on(there).try_call())
            std::this_thread::yield();
        expect(here.procedure<int(int, int)>("sum").on(there)(own, other) == own + other,
               "a sum is right");
        const auto sent = pattern(2000000, static_cast<std::uint64_t>(own));
        expect(here.procedure<std::vector<std::byte>(std::vector<std::byte>)>("echo").on(there)(
                   sent) == sent,
               "long arguments come back");
        const auto pulled = here.procedure<bulk()>("read").on(there)().pull_all<std::byte>();
        expect(pulled == pattern(served_bytes, static_cast<std::uint64_t>(other)),
               "a bulk is pulled");
        const auto pushed = pattern(served_bytes, static_cast<std::uint64_t>(100 * own + other));
        here.procedure<bulk(int)>("write").on(there)(own).push(pushed);
    }
    for (int other = 0; other < size; ++other)
        if (other != own) here.procedure<void()>("content").on(address_of(other))();
    all_content.wait();
    for (int other = 0; other < size; ++other)
        if (other != own)
            expect(written[static_cast<std::size_t>(other)] ==
                       pattern(served_bytes, static_cast<std::uint64_t>(100 * other + own)),
                   "what others push arrives");
}

void stop(int own, int size) {
    using namespace std::chrono_literals;
    event over, never;
    numbers noted;  // All handlers run on one stream.
    engine_options with{.drain = 1s};
    if (own == 0) with.keepalive = {.interval = 20ms, .timeout = 3s};
    engine here(own_uri, with);
    here.define("process", [] { return static_cast<int>(::getpid()); });
    here.define("wait", [&] { never.wait(); });
    here.define("note", [&](std::uint64_t number, std::string) { noted.push_back(number); });
    here.define("noted", [&] { return noted; });
    here.define("over", [&] { over.set(); });
    if (own != 0) return over.wait();

    const auto process = here.procedure<int()>("process");
    const auto note = here.procedure<void(std::uint64_t, std::string)>("note");
    const auto reach = [&](int other) {
        for (;;) {
            const peer there = here.lookup(address_of(other));
            if (process.on(there).try_call()) return there;
            std::this_thread::yield();
        }
    };
    const peer last = reach(size - 1);
    std::vector<peer> others;
    for (int other = 1; other < size - 1; ++other)
        others.push_back(reach(other));
    numbers expected;
    const auto tell = [&](const peer& there, std::uint64_t first) {
        std::vector<future<void>> all;
        for (std::uint64_t number = first; number < first + 100; ++number) {
            all.push_back(note.on(there).start(number, "short"));
            expected.push_back(number);
        }
        for (future<void>& each : all)
            each.get();
    };
    tell(last, 0);
    std::vector<future<void>> calls;
    for (int i = 0; i < 20; ++i)
        calls.push_back(here.procedure<void()>("wait").on(last).start());
    const int stopped = process.on(last)();
    expect(::kill(stopped, SIGSTOP) == 0, "it can be stopped");
    while (!is_stopped(stopped))
        std::this_thread::yield();
    for (std::uint64_t number = 100; number < 700; ++number)
        calls.push_back(note.on(last).start(number, std::string(30'000, 'n')));
    std::uint64_t told_others = 0;
    for (future<void>& each : calls) {
        while (!each.ready()) {
            for (const peer& other : others)
                note.on(other)(told_others, "meanwhile");
            ++told_others;
        }
        const status how = each.wait();
        expect(how == errc::disconnected,
               "calls to it end as disconnected, not " + std::string(name(how.code)));
    }
    expect(is_stopped(stopped), "it stood still meanwhile");
    const auto notes = here.procedure<numbers()>("noted");
    for (const peer& other : others)
        expect(notes.on(other)().size() == told_others, "others have had all");
    expect(::kill(stopped, SIGCONT) == 0, "it can go on");

    const peer again = reach(size - 1);
    const numbers before = notes.on(again)();
    // What had left before it was given up may arrive: from the first on, each once.
    for (std::uint64_t number = 100; expected.size() < before.size(); ++number)
        expected.push_back(number);
    tell(again, 1000);
    expect(notes.on(again)() == expected, "nothing old comes, and nothing twice");
    for (int other = 1; other < size; ++other)
        here.procedure<void()>("over").on(address_of(other))();
}

void strange(int own, int size) {
    const auto is_strange = [size](int rank) { return rank == size - 1; };
    const temporary_key key{"rank " + std::to_string(own)};
    std::string address;
    event has_address, all_over;
    std::atomic<int> over = 0;
    // Told in the open, as PMIx does for a run.
    engine open("mpi+static");
    open.define("key", [&] { return to_text(key.fingerprint()); });
    open.define("address", [&] {
        has_address.wait();
        return address;
    });
    open.define("over", [&] {
        if (++over == size - 1) all_over.set();
    });
    const auto ask = [&](int other, const char* what) {
        const peer there = open.lookup("mpi+static://" + std::to_string(other));
        for (;;) {
            auto told = open.procedure<std::string()>(what).on(there).try_call();
            if (told) return *told;
            std::this_thread::yield();
        }
    };
    // Those of the run trust each other; the stranger trusts all of them.
    std::vector<key_fingerprint> trusted;
    for (int other = 0; other < size; ++other)
        if (other != own && !is_strange(other))
            trusted.push_back(parse_key_fingerprint(ask(other, "key")));
    engine here("mpi+static+tls", {.ports = {.trust = key.trusting(trusted)}});
    here.define("sum", [](int a, int b) { return a + b; });
    address = here.address();
    has_address.set();

    for (int other = 0; other < size; ++other) {
        if (other == own) continue;
        const auto got = here.procedure<int(int, int)>("sum")
                             .on(here.lookup(ask(other, "address")))
                             .try_call(1, 2);
        if (is_strange(own) || is_strange(other))
            expect(got.code() == errc::denied && !got.sentence().empty(),
                   "who is of another run is denied with a sentence, not " +
                       std::string(name(got.code().code)) + ": " + std::string(got.sentence()));
        else
            expect(got && *got == 3, "those of the run call each other");
    }
    // Nobody leaves while others ask.
    for (int other = 0; other < size; ++other)
        if (other != own)
            open.procedure<void()>("over").on("mpi+static://" + std::to_string(other))();
    all_over.wait();
}

}  // namespace amalgam::processes
