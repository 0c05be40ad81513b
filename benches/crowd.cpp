#include "crowd.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/resource.h>

#include <amalgam/core/status.hpp>
#include <amalgam/rpc/engine.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"
#include "questions.hpp"

namespace {

using namespace amalgam;
namespace bench = amalgam::bench;
using bench::crowd_argument_bytes;
using bench::crowd_in_flight;
using std::chrono::milliseconds;

constexpr milliseconds warm_up{100};
constexpr milliseconds window{300};

using count_type = std::uint32_t(std::span<const std::byte>);

struct alignas(64) counter {
    std::atomic<std::uint64_t> calls{0};
};

/// Shared by all processes: each client counts its own calls, readable at any time.
struct board {
    std::atomic<bool> over{false};
    std::array<counter, bench::most_clients> of;

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

/// The parent holds a socket to each process.
void allow_descriptors(std::size_t clients) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur =
        std::max<rlim_t>(limit.rlim_cur, std::min<rlim_t>(limit.rlim_max, 4 * clients + 100));
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

void serve(const std::string& uri, perf::channel& talk) {
    engine server(uri, {.name = "server", .spin = always_spin});
    server.define<count_type>("count", [](std::span<const std::byte> bytes) {
        return static_cast<std::uint32_t>(bytes.size());
    });
    talk.write_line(server.address());
    talk.read_line();
    talk.write_line(std::to_string(bench::proportional_bytes()));
    talk.read_line();
}

/// Makes calls from "go" until the end.
void be_a_client(const std::string& uri, const std::string& address, const board& shared,
                 counter& mine, perf::channel& talk) {
    engine me(uri, {.name = "client"});
    const auto count = me.procedure<count_type>("count").on(me.lookup(address));
    const std::array<std::byte, crowd_argument_bytes> bytes{};
    (void)count(bytes);
    talk.write_line("ready");
    talk.read_line();
    std::vector<future<void>> callers;
    for (int i = 0; i < crowd_in_flight; ++i) {
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

}  // namespace

bench::crowd bench::measure_crowd(const std::string& uri, std::size_t clients) {
    allow_descriptors(clients);
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
    server.talk().write_line("memory");
    const double bytes = std::atof(server.talk().read_line().c_str());
    shared.over = true;
    for (const auto& each : all)
        each->talk().read_line();  // Throws a client's error.
    return {per_s, bytes};
}
