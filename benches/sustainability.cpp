// How well computing and communicating coexist on the same processors, a question of RoCL's
// authors: `bench_sustainability OUT.svg [SECONDS]`. One thread per processor computes; two
// processes, one on each of two processors, send messages between resources, or look for resources
// by broadcast, and sleep while they wait. Prints one JSON object per size:
//   computing       computation during communication, relative to computation alone
//   communicating   the shortest of all round trips without computing, relative to this one with it
//   both            their geometric mean
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>

#include "perf/measurement.hpp"
#include "perf/pair.hpp"
#include "perf/plot.hpp"

using namespace amalgam;

namespace {

/// Threads that compute, one on each of those processors, until destroyed.
class computing {
public:
    explicit computing(const cpu_set_t& processors) {
        for (int each = 0; each < CPU_SETSIZE; ++each) {
            if (!CPU_ISSET(each, &processors)) continue;
            threads_.emplace_back([this, each] {
                cpu_set_t only;
                CPU_ZERO(&only);
                CPU_SET(each, &only);
                ::sched_setaffinity(0, sizeof(only), &only);
                while (!over_.load(std::memory_order_relaxed))
                    cycle();
            });
        }
    }
    ~computing() {
        over_ = true;
        for (std::thread& each : threads_)
            each.join();
    }
    std::uint64_t cycles() const { return cycles_.load(); }

private:
    /// About 20 us of arithmetic within the innermost cache.
    void cycle() {
        std::array<double, 1024> values;
        values.fill(1.0);
        for (int round = 0; round < 16; ++round)
            for (double& each : values)
                each = each * 1.0000001 + 0.5;
        keep_.store(values[7], std::memory_order_relaxed);
        cycles_.fetch_add(1, std::memory_order_relaxed);
    }

    std::atomic<bool> over_{false};
    std::atomic<std::uint64_t> cycles_{0};
    std::atomic<double> keep_{0};
    std::vector<std::thread> threads_;
};

/// A form of communication between this process and another: `exchange(bytes)` is one round trip.
struct way {
    std::string name;
    std::vector<std::size_t> sizes;
    std::function<void(perf::channel&)> other;
    std::function<void(perf::channel&,
                       const std::function<void(engine&, std::function<void(std::size_t)>)>&)>
        here;
};

void echo(const std::string& uri, perf::channel& talk) {
    const std::string directory = talk.read_line();
    engine on(uri);
    {
        context here(on, {.directory = directory});
        const resource mine = here.add({{"type", "echo"}});
        talk.write_line("ready");
        on.run([&] {
            for (;;) {
                resource_message got = mine.receive();
                if (got.content.size() == 0) return;
                mine.send(got.from, got.tag, got.content.bytes());
            }
        });
    }
    talk.write_line("done");
    (void)talk.read_line();
}

way messages(const std::string& uri) {
    return {uri.substr(0, uri.find(':')),
            {8, 64, 512, 4096, 32768, 262144},
            [uri](perf::channel& talk) { echo(uri, talk); },
            [uri](perf::channel& talk, const auto& use) {
                engine on(uri);
                const directory_server directory(on);
                context here(on, {.directory = on.address()});
                talk.write_line(on.address());
                (void)talk.read_line();
                const resource mine = here.add({{"type", "asks"}});
                const resource_id there = here.find({{"type", "echo"}})->id;
                const std::vector<std::byte> content(1 << 20);
                use(on, [&](std::size_t bytes) {
                    mine.send(there, 1, const_bytes(content).first(bytes));
                    (void)mine.receive();
                });
                mine.send(there, 1, const_bytes());
                (void)talk.read_line();
            }};
}

/// Directory servers as if of two hosts: each query is one broadcast packet.
way broadcasts() {
    const std::string group = fmt::format("udp://127.255.255.255:{}", 47200 + ::getpid() % 1000);
    const auto options = [group] {
        directory_options all;
        all.ring.medium = open_broadcast(group);
        all.ring.broadcast_wait = std::chrono::seconds(2);  // No trees meanwhile.
        return all;
    };
    const std::string uri = "tcp://127.0.0.1:0";
    const std::vector<std::size_t> sizes{8, 64, 512};
    return {"udp broadcast", sizes,
            [=](perf::channel& talk) {
                engine on(uri);
                const directory_server directory(on, options());
                context here(on, {.directory = on.address()});
                for (const std::size_t each : sizes)
                    here.add({{"name", std::string(each, 'x')}}).release();
                talk.write_line("ready");
                (void)talk.read_line();
            },
            [=](perf::channel& talk, const auto& use) {
                engine on(uri);
                const directory_server directory(on, options());
                context here(on, {.directory = on.address()});
                (void)talk.read_line();
                for (int attempts = 1000; directory.servers() < 2 && attempts > 0; --attempts)
                    std::this_thread::sleep_for(std::chrono::milliseconds(10));
                use(on, [&](std::size_t bytes) {
                    if (!here.find({{"name", std::string(bytes, 'x')}}))
                        throw error(errc::not_found, "a query found nothing");
                });
                talk.write_line("done");
            }};
}

/// Round trips during that time; returns seconds per round trip.
double round_trip(engine& on, const std::function<void(std::size_t)>& exchange, std::size_t bytes,
                  double seconds) {
    return on.run([&] {
        for (int i = 0; i < 10; ++i)
            exchange(bytes);
        const auto start = perf::clock_type::now();
        std::uint64_t count = 0;
        do {
            exchange(bytes);
            ++count;
        } while (perf::seconds_since(start) < seconds);
        return perf::seconds_since(start) / static_cast<double>(count);
    });
}

double rate_of(const computing& busy, double seconds, const std::function<void()>& meanwhile) {
    const std::uint64_t before = busy.cycles();
    const auto start = perf::clock_type::now();
    meanwhile();
    while (perf::seconds_since(start) < seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return static_cast<double>(busy.cycles() - before) / perf::seconds_since(start);
}

struct outcome {
    std::string name;
    std::size_t bytes;
    double alone, beside;  // Seconds per round trip.
    double computed;       // Cycles per second during it.
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s OUT.svg [SECONDS]\n", argv[0]);
        return 2;
    }
    const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
    cpu_set_t processors;  // Before the two processes are pinned to one each.
    ::sched_getaffinity(0, sizeof(processors), &processors);
    std::vector<outcome> results;
    double computed_alone = 0;
    try {
        for (const way& each : {messages("shm://"), messages("tcp://127.0.0.1:0"), broadcasts()}) {
            perf::forked_peer peer(each.other);
            each.here(peer.talk(), [&](engine& on, const std::function<void(std::size_t)>& once) {
                for (const std::size_t bytes : each.sizes) {
                    outcome one{each.name, bytes, round_trip(on, once, bytes, seconds), 0, 0};
                    const computing busy(processors);
                    one.computed = rate_of(
                        busy, seconds, [&] { one.beside = round_trip(on, once, bytes, seconds); });
                    results.push_back(one);
                }
                const computing busy(processors);
                computed_alone = std::max(computed_alone, rate_of(busy, seconds, [] {}));
            });
        }
    } catch (const error& why) {
        std::fprintf(stderr, "%s: %s\n", argv[0], why.what());
        return 1;
    }

    std::map<std::size_t, double> shortest;
    for (const outcome& each : results) {
        double& best = shortest.try_emplace(each.bytes, each.alone).first->second;
        best = std::min(best, each.alone);
    }
    std::array<perf::plot_panel, 3> panels{
        perf::plot_panel{"Computing", "of its rate alone", {}},
        perf::plot_panel{"Communicating", "of the best round trip", {}},
        perf::plot_panel{"Both (geometric mean)", "of the best", {}}};
    for (const outcome& each : results) {
        const double computing = each.computed / computed_alone;
        const double communicating = shortest[each.bytes] / each.beside;
        const double both = std::sqrt(computing * communicating);
        fmt::print(
            "{{\"by\": \"{}\", \"bytes\": {}, \"round_trip_us\": {:.2f}, "
            "\"round_trip_computing_us\": {:.2f}, \"computing\": {:.3f}, "
            "\"communicating\": {:.3f}, \"both\": {:.3f}}}\n",
            each.name, each.bytes, each.alone * 1e6, each.beside * 1e6, computing, communicating,
            both);
        std::size_t panel = 0;
        for (const double value : {computing, communicating, both}) {
            auto& lines = panels[panel++].lines;
            if (lines.empty() || lines.back().name != each.name) lines.push_back({each.name, {}});
            lines.back().points.emplace_back(static_cast<double>(each.bytes), value);
        }
    }
    std::ofstream(argv[1]) << perf::to_svg({panels.begin(), panels.end()});
    return 0;
}
