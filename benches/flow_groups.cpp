// A farm over three processes: `bench_flow_groups`. One has the source and the sink, two have a
// worker each, whose tasks take 1 ms of a core. Prints how busy the workers were, in percent: the
// time their tasks take, over the time in which all were done.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>

namespace am = amalgam;

namespace {

using clock_type = std::chrono::steady_clock;

constexpr int tasks = 4000;
constexpr std::chrono::milliseconds task_time{1};

/// Runs the part of `group`; the time from the first task's departure to the last one's return.
double run_group(const char* group) {
    ::setenv("AMALGAM_GROUP", group, 1);
    am::graph g;
    clock_type::time_point first;
    auto from = g.add_source<int>("from", [&](am::outlet<int>& out) {
        first = clock_type::now();
        for (int i = 0; i < tasks; ++i)
            out.send(i);
    });
    std::vector<am::block<int, int>> workers;
    for (const char* name : {"worker0", "worker1"})
        workers.push_back(g.add_stage<int, int>(name, [](int n) {
            const auto until = clock_type::now() + task_time;
            while (clock_type::now() < until) {
            }
            return n;
        }));
    auto to = g.add_sink<int>("to", [](int) {});
    g.pipeline(from, g.farm(workers, am::on_demand(2)), to);
    g.group("ends").add(from, to);
    g.group("W0").add(workers[0]);
    g.group("W1").add(workers[1]);
    am::run(g, {.threads = 1});
    return std::chrono::duration<double>(clock_type::now() - first).count();
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
    const double elapsed = run_group("ends");
    int failed = 0;
    for (const pid_t other : others) {
        int status = 0;
        ::waitpid(other, &status, 0);
        failed |= status;
    }
    const std::chrono::duration<double> worked = tasks * task_time;
    std::printf("{\"test\": \"flow-farm-of-groups\", \"value\": %.4g}\n",
                100 * worked.count() / 2 / elapsed);
    return failed != 0;
}
