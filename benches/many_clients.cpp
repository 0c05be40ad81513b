// Throughput of one server with a growing number of client processes. The server has the second
// processor, all clients share the first; each has 16 calls of 64 B in flight.
//   many_clients shm|tcp CLIENTS            calls/s of that many clients together
//   many_clients shm|tcp worst-over-best    the lowest of these rates over the highest, for 1, 2,
//                                           4 ... 64 clients
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/engine.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"

namespace {

using namespace amalgam;
using std::chrono::milliseconds;

constexpr std::size_t most_clients = 64;
constexpr int in_flight = 16;
constexpr std::size_t argument_bytes = 64;
constexpr milliseconds warm_up{100};
constexpr milliseconds window{300};
constexpr int rounds = 7;

using count_type = std::uint32_t(std::span<const std::byte>);

struct alignas(64) counter {
    std::atomic<std::uint64_t> calls{0};
};

/// Shared by all processes: each client counts its own calls, readable at any time.
struct board {
    std::atomic<bool> over{false};
    std::array<counter, most_clients> of;

    std::uint64_t calls() const {
        std::uint64_t sum = 0;
        for (const counter& each : of)
            sum += each.calls.load(std::memory_order_relaxed);
        return sum;
    }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct unmap {
    void operator()(board* at) const noexcept { ::munmap(at, sizeof *at); }
};

std::unique_ptr<board, unmap> share_a_board() {
    void* at =
        ::mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        throw error(errc::no_memory, "cannot map memory to share with the clients");
    return std::unique_ptr<board, unmap>(new (at) board);
}

/// Ends the clients' loops in any case.
struct end_of_calls {
    explicit end_of_calls(board& on) : shared(on) {}
    end_of_calls(const end_of_calls&) = delete;
    end_of_calls& operator=(const end_of_calls&) = delete;
    ~end_of_calls() { shared.over = true; }
    board& shared;
};

void serve(const std::string& uri, perf::channel& talk) {
    engine server(uri, {.name = "server", .spin = always_spin});
    server.define<count_type>("count", [](std::span<const std::byte> bytes) {
        return static_cast<std::uint32_t>(bytes.size());
    });
    talk.write_line(server.address());
    talk.read_line();
}

/// Makes calls from "go" until the end.
void be_a_client(const std::string& uri, const std::string& address, const board& shared,
                 counter& mine, perf::channel& talk) {
    engine me(uri, {.name = "client"});
    const auto count = me.procedure<count_type>("count").on(me.lookup(address));
    const std::array<std::byte, argument_bytes> bytes{};
    (void)count(bytes);
    talk.write_line("ready");
    talk.read_line();
    std::vector<future<void>> callers;
    for (int i = 0; i < in_flight; ++i) {
        callers.push_back(me.spawn([&] {
            while (!shared.over.load(std::memory_order_relaxed)) {
                (void)count(bytes);
                mine.calls.store(mine.calls.load(std::memory_order_relaxed) + 1,
                                 std::memory_order_relaxed);
            }
        }));
    }
    for (auto& caller : callers)
        caller.get();
    talk.write_line("done");
}

/// Calls per second answered to `clients` processes.
double rate(const std::string& uri, std::size_t clients) {
    const auto memory = share_a_board();
    board& shared = *memory;
    perf::forked_peer server([&](perf::channel& talk) { serve(uri, talk); });
    const std::string address = server.talk().read_line();
    std::vector<std::unique_ptr<perf::forked_peer>> all;
    for (std::size_t i = 0; i < clients; ++i) {
        all.push_back(std::make_unique<perf::forked_peer>(
            [&, i](perf::channel& talk) { be_a_client(uri, address, shared, shared.of[i], talk); },
            0));
    }
    const end_of_calls at_last(shared);
    for (const auto& each : all)
        each->talk().read_line();
    for (const auto& each : all)
        each->talk().write_line("go");

    std::this_thread::sleep_for(warm_up);
    const std::uint64_t before = shared.calls();
    const auto begin = perf::clock_type::now();
    std::this_thread::sleep_for(window);
    const std::uint64_t calls = shared.calls() - before;
    const double per_s = static_cast<double>(calls) / perf::seconds_since(begin);
    shared.over = true;
    for (const auto& each : all)
        each->talk().read_line();  // Throws a client's error.
    return per_s;
}

void print(const std::string& uri, std::size_t clients, double calls_per_s) {
    perf::measurement m;
    m.test = "server-throughput";
    m.uri = uri;
    m.size_bytes = argument_bytes;
    m.depth = clients * in_flight;
    m.ops_per_s = calls_per_s;
    m.bytes_per_s = calls_per_s * static_cast<double>(argument_bytes);
    std::puts(perf::to_json(m).c_str());
    std::fflush(stdout);
}

/// Rotates through the numbers of clients, and takes the best rate of each: the machine is shared,
/// and its slow moments of a second or more would otherwise distort the comparison.
double worst_over_best(const std::string& uri) {
    std::map<std::size_t, std::vector<double>> all;
    for (int i = 0; i < rounds; ++i)
        for (std::size_t clients = 1; clients <= most_clients; clients *= 2)
            all[clients].push_back(rate(uri, clients));
    std::vector<double> rates;
    for (const auto& [clients, of_all_rounds] : all) {
        rates.push_back(*std::max_element(of_all_rounds.begin(), of_all_rounds.end()));
        print(uri, clients, rates.back());
    }
    const auto [worst, best] = std::minmax_element(rates.begin(), rates.end());
    return *worst / *best;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view over = argc == 3 ? argv[1] : "";
    const std::string_view what = argc == 3 ? argv[2] : "";
    const auto clients = static_cast<std::size_t>(argc == 3 ? std::atoll(argv[2]) : 0);
    const bool all = what == "worst-over-best";
    if ((over != "shm" && over != "tcp") || (!all && (clients == 0 || clients > most_clients))) {
        std::fprintf(stderr,
                     "usage: %s shm|tcp worst-over-best, or a number of clients up to %zu\n",
                     argv[0], most_clients);
        return 2;
    }
    ::alarm(100);  // In case anything hangs: the others die with this process.
    try {
        const std::string uri = over == "shm" ? "shm://" : "tcp://127.0.0.1:0";
        if (all) {
            std::printf("{\"test\": \"server-throughput\", \"value\": %.6g}\n",
                        worst_over_best(uri));
        } else {
            print(uri, clients, rate(uri, clients));
        }
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s: %s\n", argv[0], e.what());
        return 1;
    }
}
