// A farm over three processes: `bench_flow_groups`. One has the source and the sink, the other two
// have a worker each, with tasks of 1 ms. Prints how busy the workers were, in percent: the time of
// their tasks, including what others took from them on the same core, over the time until all were
// done.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/flow.hpp>

namespace {

using clock_type = std::chrono::steady_clock;

constexpr int tasks = 4000;
constexpr std::chrono::milliseconds task_time{1};

double seconds_since(clock_type::time_point begin) {
    return std::chrono::duration<double>(clock_type::now() - begin).count();
}

/// Runs the part of `group`; returns how busy its workers were while tasks were in flight.
double run_group(const char* group) {
    ::setenv("AMALGAM_GROUP", group, 1);
    am::graph g;
    clock_type::time_point first;
    double worked = 0, elapsed = 1;
    auto from = g.add_source<int>("from", [&](am::outlet<int>& out) {
        first = clock_type::now();
        for (int i = 0; i < tasks; ++i)
            out.send(i);
    });
    std::vector<am::block<int, double>> workers;
    for (const char* name : {"worker0", "worker1"})
        workers.push_back(g.add_stage<int, double>(name, [](int) {
            const auto begin = clock_type::now();
            while (clock_type::now() < begin + task_time) {
            }
            return seconds_since(begin);
        }));
    auto to = g.add_sink<double>("to", [&](double seconds) {
        worked += seconds;
        elapsed = seconds_since(first);
    });
    g.pipeline(from, g.farm(workers, am::on_demand(4)), to);
    g.group("ends").add(from, to);
    g.group("W0").add(workers[0]);
    g.group("W1").add(workers[1]);
    am::run(g, {.threads = 1});
    return worked / 2 / elapsed;
}

}  // namespace

int main() {
    const std::string here = "bench-" + std::to_string(::getpid());
    std::string groups;
    for (const std::string name : {"ends", "W0", "W1"})
        groups += (groups.empty() ? "\"" : ", \"") + name + R"(": {"endpoint": "shm://)" + here +
                  "-" + name + "\"}";
    ::setenv("AMALGAM_CONFIG", ("{\"groups\": {" + groups + "}}").c_str(), 1);
    std::vector<pid_t> others;
    for (const char* name : {"W0", "W1"}) {
        const pid_t other = ::fork();
        if (other == 0) {
            run_group(name);
            std::_Exit(0);
        }
        others.push_back(other);
    }
    const double busy = run_group("ends");
    int failed = 0;
    for (const pid_t other : others) {
        int status = 0;
        ::waitpid(other, &status, 0);
        failed |= status;
    }
    std::printf("{\"test\": \"flow-farm-of-groups\", \"value\": %.4g}\n", 100 * busy);
    return failed != 0;
}
