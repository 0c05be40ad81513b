// Directories of many hosts: `bench_directory_scale OUT.svg [tree|broadcast] [HOSTS…]`. On the
// deterministic network, in virtual time: every host is a real directory server on its own engine;
// a frame takes 50 to 150 us; computing takes no time. For each number of hosts (default: 10, 100,
// 1000, 5000), once with trees and once with broadcasts, prints one JSON object. It gives messages
// (a broadcast counts as one) and latency of a query that another host can answer, of one that none
// can, and of a search for everything; of a registration; and the time until all know that a host
// is gone, that one has fallen silent, and that one has joined. Checks every answer: a wrong or
// repeated one ends it with exit code 1.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/random.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/fabric/loop.hpp>

#include "perf/plot.hpp"

using namespace amalgam;
using namespace std::chrono_literals;

namespace {

double ms(clock::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
}

void expect(bool fact, const std::string& what) {
    if (fact) return;
    std::fprintf(stderr, "bench_directory_scale: %s\n", what.c_str());
    std::exit(1);
}

struct measured {
    double messages = 0;
    double latency_ms = 0;
};

/// Hosts, each with a directory server. The few that send queries have a context, too.
class simulation {
public:
    simulation(std::size_t hosts, search_way way) : way_(way) {
        net_.delay(50us, 150us);
        hosts_.reserve(hosts + 1);
        add_host();
        net_.run_for(100ms);
        // All at once, as when a cluster boots, in waves that one directory can handle.
        constexpr std::size_t wave = 100;
        while (hosts_.size() < hosts) {
            for (std::size_t i = 0; i < wave && hosts_.size() < hosts; ++i)
                add_host();
            net_.run_for(20ms);
        }
        until([&] { return all_know(hosts); }, "all hosts know all");
        net_.run_for(5s);
        for (std::size_t i = 0; i < hosts; ++i)
            hosts_[i].resource = in(i, [&](context& here) {
                return here.add({{"type", "host"}, {"number", std::to_string(i)}}).release();
            });
    }

    std::size_t size() const { return hosts_.size(); }

    /// Runs `work(context)` at a host, and counts its messages beyond the background traffic.
    template <typename Work>
    measured measure(std::size_t at, Work work) {
        (void)in(at, [](context& here) { return here.id(); });
        const std::uint64_t idle_before = net_.operations();
        net_.run_for(1s);
        const double idle_per_ms = static_cast<double>(net_.operations() - idle_before) / 1000;
        const std::uint64_t before = net_.operations();
        const clock::time_point start = net_.now();
        clock::time_point end;
        in(at, [&](context& here) {
            work(here);
            end = here.where().now();
            return true;
        });
        const double spent = ms(net_.now() - start);
        return {static_cast<double>(net_.operations() - before) - idle_per_ms * spent,
                ms(end - start)};
    }
    measured query(std::size_t from, std::size_t of, bool exists) {
        return measure(from, [&](context& here) {
            attribute_list what{{"number", exists ? std::to_string(of) : "none"}};
            what.ask("type");
            const auto found = here.find(what);
            expect(found.has_value() == exists, "a query gets a wrong answer");
            if (found)
                expect(found->id == hosts_[of].resource && found->what.text("type") == "host",
                       "a query finds the wrong resource");
        });
    }
    measured search_all(std::size_t from, std::size_t expected) {
        return measure(from, [&](context& here) {
            attribute_list what{{"type", "host"}};
            std::set<resource_id> seen;
            for (const found_resource& each : here.search(what))
                expect(seen.insert(each.id).second, "a search finds a resource twice");
            expect(seen.size() == expected,
                   fmt::format("a search finds {} of {} resources", seen.size(), expected));
        });
    }
    measured registration(std::size_t at) {
        return measure(at, [](context& here) { here.add({{"type", "brief"}}); });
    }
    /// Time until nobody knows the host any more, after its connections break or it falls silent.
    double end(std::size_t which, bool silently) {
        hosts_[which].dead = true;
        silently ? net_.cut(name(which)) : net_.kill(name(which));
        const auto start = net_.now();
        until([&] { return all_know(alive()); }, "all know that a host is gone");
        return ms(net_.now() - start);
    }
    /// Time until all know a new one.
    double grow() {
        const auto start = net_.now();
        add_host();
        until([&] { return all_know(alive()); }, "all know that a host has joined");
        return ms(net_.now() - start);
    }
    std::size_t alive() const {
        return static_cast<std::size_t>(
            std::count_if(hosts_.begin(), hosts_.end(), [](const host& h) { return !h.dead; }));
    }

private:
    struct host {
        std::unique_ptr<engine> on;
        std::unique_ptr<directory_server> serves;
        std::unique_ptr<context> here;  // Destroyed first.
        resource_id resource = resource_id::none;
        bool dead = false;
    };

    static std::string name(std::size_t which) { return "host" + std::to_string(which); }

    void add_host() {
        host& one = hosts_.emplace_back();
        const std::string its_name = name(hosts_.size() - 1);
        one.on = std::make_unique<engine>(net_.port(its_name));
        directory_options options;
        options.ring.seed = hosts_.size();
        if (way_ == search_way::by_broadcast) {  // Without any addresses.
            options.ring.medium = net_.broadcast(its_name);
        } else if (hosts_.size() > 1) {
            options.ring.others = {"loop://host0"};
        }
        one.serves = std::make_unique<directory_server>(*one.on, options);
    }
    template <typename Work>
    std::invoke_result_t<Work&, context&> in(std::size_t which, Work work) {
        host& where = hosts_[which];
        auto done = where.on->spawn([&where, work]() mutable {
            if (!where.here)
                where.here = std::make_unique<context>(
                    *where.on, context_options{.directory = where.on->address()});
            return work(*where.here);
        });
        for (int i = 0; i < 100000 && !done.ready(); ++i)
            net_.run_for(1ms);
        expect(done.ready(), "an operation never ends");
        return done.get();
    }
    bool all_know(std::size_t count) const {
        return std::all_of(hosts_.begin(), hosts_.end(), [&](const host& each) {
            return each.dead || each.serves->servers() == count;
        });
    }
    void until(const std::function<bool()>& reached, const char* what) {
        for (int i = 0; i < 60000; ++i) {
            if (reached()) return;
            net_.run_for(10ms);
        }
        expect(false, fmt::format("it takes too long until {}", what));
    }

    const search_way way_;
    loop_network net_{{.seed = 1}};
    std::vector<host> hosts_;
};

const char* name_of(search_way way) {
    return way == search_way::by_tree ? "tree" : "broadcast";
}

/// Measures and prints all; returns the panels to draw.
std::vector<perf::plot_panel> draw(search_way way, const std::vector<std::size_t>& sizes) {
    perf::plot_panel messages{
        fmt::format("Messages, by {}", name_of(way)), "messages", {}, "hosts", 10};
    perf::plot_panel times{fmt::format("Time, by {}", name_of(way)), "ms", {}, "hosts", 10};
    for (const char* what : {"query, found", "query, no match", "search of all"})
        for (perf::plot_panel* each : {&messages, &times})
            each->lines.push_back({what, {}});
    times.lines.push_back({"host gone, all know", {}});
    times.lines.push_back({"host silent, all know", {}});
    times.lines.push_back({"host joined, all know", {}});

    for (const std::size_t hosts : sizes) {
        simulation all(hosts, way);
        seeded_random random(hosts);
        const auto average = [&](int rounds, auto one) {
            measured sum;
            for (int i = 0; i < rounds; ++i) {
                const measured got = one();
                sum.messages += got.messages / rounds;
                sum.latency_ms += got.latency_ms / rounds;
            }
            return sum;
        };
        const auto other_than = [&](std::size_t which) {
            return (which + 1 + random.below(hosts - 1)) % hosts;
        };
        const measured registered =
            average(5, [&] { return all.registration(random.below(hosts)); });
        const measured found = average(20, [&] {
            const std::size_t from = random.below(hosts);
            return all.query(from, other_than(from), true);
        });
        const measured nowhere =
            average(5, [&] { return all.query(random.below(hosts), 0, false); });
        const measured everything =
            average(2, [&] { return all.search_all(random.below(hosts), hosts); });
        // A host in others' trees goes: they still find everything that remains.
        const std::size_t gone = 1 + random.below(hosts - 3);
        const double noticed = all.end(gone, false);
        const std::size_t from = gone + 1 < hosts ? gone + 1 : 0;
        const measured after = average(5, [&] { return all.query(from, from == 0 ? 1 : 0, true); });
        const double silence_noticed = all.end(gone == 1 ? 2 : 1, true);
        const double joined = all.grow();
        fmt::print(
            "{{\"by\": \"{}\", \"hosts\": {}, \"registration\": {{\"messages\": {:.1f}, \"ms\": "
            "{:.3f}}}, "
            "\"found\": {{\"messages\": {:.1f}, \"ms\": {:.3f}}}, \"nowhere\": {{\"messages\": "
            "{:.1f}, \"ms\": {:.3f}}}, \"search\": {{\"messages\": {:.1f}, \"ms\": {:.3f}}}, "
            "\"gone_ms\": {:.0f}, \"found_after_ms\": {:.3f}, \"silent_ms\": {:.0f}, "
            "\"come_ms\": {:.0f}}}\n",
            name_of(way), hosts, registered.messages, registered.latency_ms, found.messages,
            found.latency_ms, nowhere.messages, nowhere.latency_ms, everything.messages,
            everything.latency_ms, noticed, after.latency_ms, silence_noticed, joined);
        std::fflush(stdout);
        const auto x = static_cast<double>(hosts);
        std::size_t line = 0;
        for (const measured& each : {found, nowhere, everything}) {
            messages.lines[line].points.emplace_back(x, std::max(1.0, each.messages));
            times.lines[line++].points.emplace_back(x, each.latency_ms);
        }
        times.lines[3].points.emplace_back(x, noticed);
        times.lines[4].points.emplace_back(x, silence_noticed);
        times.lines[5].points.emplace_back(x, joined);
    }
    return {messages, times};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: %s OUT.svg [tree|broadcast] [HOSTS...]\n", argv[0]);
        return 2;
    }
    std::vector<search_way> ways{search_way::by_tree, search_way::by_broadcast};
    int next = 2;
    for (const search_way each : {search_way::by_tree, search_way::by_broadcast}) {
        if (next == argc || std::string(argv[next]) != name_of(each)) continue;
        ways = {each};
        ++next;
    }
    std::vector<std::size_t> sizes;
    for (; next < argc; ++next)
        sizes.push_back(std::strtoul(argv[next], nullptr, 10));
    if (sizes.empty()) sizes = {10, 100, 1000, 5000};

    std::vector<perf::plot_panel> panels;
    for (const search_way way : ways) {
        for (perf::plot_panel& each : draw(way, sizes))
            panels.push_back(std::move(each));
    }
    std::ofstream(argv[1]) << perf::to_svg(panels);
    return 0;
}
