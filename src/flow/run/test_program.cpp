// A flow program for tests; its first argument selects what it does.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/alias.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/tasks/event.hpp>
#include <amalgam/tasks/ult.hpp>

#include "few_threads.hpp"
#include "flow/checkpoints/summing_graph.hpp"
#include "flow/graph/random_graph.hpp"
#include "flow/graph/random_pipeline.hpp"

namespace {

std::string group() {
    const char* name = std::getenv("AMALGAM_GROUP");
    return name != nullptr ? name : "";
}

/// Writes "GROUP PID" to the fifo and keeps it open: end of file means everybody who ever reported
/// is gone.
void report(const char* fifo) {
    int fd = ::open(fifo, O_WRONLY);  // Kept, and inherited by children.
    std::string line = group() + " " + std::to_string(::getpid()) + "\n";
    if (::write(fd, line.data(), line.size()) < 0) std::perror("fifo");
}

/// random SEED REPLICAS FILE: a random pipeline; the sink writes to FILE.<replica>.
int random_pipeline_run(std::uint64_t seed, bool replicas, const std::string& file) {
    auto plan = am::random_pipeline::draw(seed, replicas);
    std::vector<am::random_pipeline::item> results;
    am::graph graph;
    am::random_pipeline::build(graph, plan, results);
    int code = am::run_main(graph, {.batch_bytes = 64 + seed * 97 % 5000});
    if (group() == "G" + std::to_string(plan.replicas.size() - 1)) {
        const char* replica = std::getenv("AMALGAM_REPLICA");
        std::ofstream out(file + "." + (replica != nullptr ? replica : "0"));
        for (const auto& one : results)
            out << one.value << ' ' << one.text << '\n';
    }
    return code;
}

/// blocks SEED FILE: a random graph; the sinks write to FILE.<group>.
int random_graph_run(std::uint64_t seed, const std::string& file) {
    const auto plan = am::random_graph::draw(seed, 6);
    am::random_graph::outcome outcome;
    am::graph graph;
    am::random_graph::build(graph, plan, outcome);
    const int code = am::run_main(graph, {.batch_bytes = 64 + seed * 97 % 5000});
    std::ofstream out(file + "." + group());
    for (const std::uint64_t value : am::random_graph::all_of(outcome))
        out << value << '\n';
    if (!outcome.overtaken.empty()) out << outcome.overtaken << '\n';
    return code;
}

/// endless-blocks SEED FIFO: the same, without end. Its sinks report some items, too.
int endless_random_graph_run(std::uint64_t seed, const char* fifo) {
    const auto plan = am::random_graph::draw(seed, 6);
    am::random_graph::outcome outcome;
    am::graph graph;
    outcome.on_item = [fifo](std::uint64_t count) {
        if (count == 1 || count == 100 || count == 1000) report(fifo);
    };
    am::random_graph::build(graph, plan, outcome, true);
    return am::run_main(graph);
}

/// Numbers from G1 through G2 to G3. `last`: how many; 0: endless.
int three_groups(int last, const std::string& mode, const char* fifo = nullptr,
                 const am::run_options& options = {}) {
    am::graph graph;
    auto from = graph.add_source<int>("from", [last](am::outlet<int>& out) {
        for (int i = 1; i <= last || last == 0; ++i) {
            out.send(i);
            if (last == 0) am::this_task::sleep_for(std::chrono::milliseconds(1));
        }
    });
    auto middle = graph.add_stage<int, int>("middle", [mode](int n) {
        if (mode == "throw" && n == 100) throw std::runtime_error("no more than 100");
        if (mode == "colors" && n == 100) throw std::runtime_error("red \x1b[31m");
        if (mode == "stopped" && n == 100) ::kill(::getpid(), SIGSTOP);
        if (mode == "busy" && n == 100) ::usleep(4500000);  // Computes on its thread.
        return n;
    });
    auto to = graph.add_sink<int>(mode == "differ" ? "to " + group() : "to",
                                  [=, count = 0](int n) mutable {
                                      if (++count == 1 && mode == "flowing") report(fifo);
                                      if (n != last || (mode != "count" && mode != "busy")) return;
                                      std::printf("got %d\n", count);
                                      std::fflush(stdout);  // It may be stopped next.
                                  });
    graph.pipeline(from, middle, to);
    graph.group("G1").add(from);
    graph.group("G2").add(middle);
    if (mode == "twice") graph.group("G1").add(middle);
    if (mode != "nowhere") graph.group("G3").add(to);
    return am::run_main(graph, options);
}

/// A fast source in G1; a sink in G3 that sleeps for each item. `cut`: it then kills itself.
int slow_sink(bool cut) {
    am::graph graph;
    auto from = graph.add_source<int>("from", [](am::outlet<int>& out) {
        for (int i = 0; i < 100; ++i)
            out.send(i);
    });
    auto middle = graph.add_stage<int, int>("middle", [](int n) { return n; });
    auto to = graph.add_sink<int>("to", [cut](int n) {
        am::this_task::sleep_for(std::chrono::milliseconds(cut ? 20 : 2));
        if (cut && n == 99) ::kill(::getpid(), SIGKILL);
    });
    graph.pipeline(from, middle, to);
    graph.group("G1").add(from);
    graph.group("G2").add(middle);
    graph.group("G3").add(to);
    return am::run_main(graph);
}

/// The sender may have one item under way to each worker, and so waits for their word all the time.
int demand_one() {
    am::graph graph;
    auto from = graph.add_source<int>("from", [](am::outlet<int>& out) {
        for (int i = 0; i < 2000; ++i)
            out.send(i);
    });
    auto work = graph.add_farm<int, int>(
        "work", 2, [](int n) { return n; }, am::on_demand(1));
    auto to = graph.add_sink<int>("to", [](int) {});
    graph.pipeline(from, work, to);
    graph.group("G1").add(from);
    graph.group("G2").add(work);
    graph.group("G3").add(to);
    return am::run_main(graph);
}

/// Leaves an orphan, which the launcher adopts and reaps; then this returns.
void leave_an_orphan() {
    int ends[2];
    if (::pipe(ends) != 0) return;
    if (const pid_t child = ::fork(); child != 0) {
        ::waitpid(child, nullptr, 0);
    } else {
        const pid_t orphan = ::fork();
        if (orphan == 0) ::_exit(5);
        if (::write(ends[1], &orphan, sizeof orphan) < 0) std::perror("pipe");
        ::_exit(0);
    }
    pid_t orphan = 0;
    if (::read(ends[0], &orphan, sizeof orphan) != sizeof orphan) return;
    while (::kill(orphan, 0) == 0)
        ::usleep(1000);
}

/// G2 ends with 7 on SIGUSR1, G1 with 9 on SIGTERM.
int end_when_asked(const char* fifo) {
    std::signal(SIGUSR1, [](int) { ::_exit(7); });
    if (group() == "G1") std::signal(SIGTERM, [](int) { ::_exit(9); });
    report(fifo);
    for (;;)
        ::pause();
}

/// Numbers from G1 to G3. The program of G1 stops the run once all have joined, and G3 has taken
/// more items than fit elsewhere.
int stopped_by_program() {
    am::graph graph;
    am::event enough;
    auto from = graph.add_source<int>("from", [&](am::outlet<int>& out) {
        for (int i = 1;; ++i) {
            out.send(i);
            if (i == 100'000) enough.set();
        }
    });
    auto middle = graph.add_stage<int, int>("middle", [](int n) { return n; });
    auto to = graph.add_sink<int>("to", [](int) {});
    graph.pipeline(from, middle, to);
    graph.group("G1").add(from);
    graph.group("G2").add(middle);
    graph.group("G3").add(to);
    const am::run_options little{.queue_items = 16, .batch_bytes = 1024, .window_bytes = 4096};
    if (group() != "G1") return am::run_main(graph, little);
    am::running_graph running = am::start(graph, little);
    enough.wait();
    running.stop();
    try {
        running.wait();
    } catch (const am::error& why) {
        std::printf("%s\n", std::string(am::name(why.code().code)).c_str());
        return 1;
    }
    return 0;
}

/// says WHAT: G2 sends something invalid on its control line, while anybody listens.
int say_on_the_control_line(const std::string& what) {
    am::run_options options;
    if (what == "much") options.join_limit = std::chrono::milliseconds(200);
    if (group() != "G2") return three_groups(0, "", nullptr, options);
    const int line = std::atoi(std::getenv("AMALGAM_CONTROL"));
    const auto say = [line](const std::string& text) {
        return ::send(line, text.data(), text.size(), MSG_NOSIGNAL) >= 0;
    };
    const std::string ready = R"({"kind": "ready", "address": )", graph = R"(, "graph": "g")";
    const std::string report = "{\"kind\": \"report\", \"report\": \"{}\"}\n";
    if (what == "nonsense") say("7\n");
    if (what == "key") say("{\"kind\": \"key\", \"keys\": [\"zz\"]}\n");
    if (what == "far") say(ready + "\"" + std::string(100'000, 'a') + "\"" + graph + "}\n");
    if (what == "late") say(ready + "\"tcp://127.0.0.1:1\", \"join_ms\": -1" + graph + "}\n");
    while ((what == "endless" && say(std::string(100'000, 'x'))) ||
           (what == "much" && say(report))) {
    }
    for (;;)
        ::pause();
}

/// One item, twice.
int run_twice() {
    for (int i = 0; i < 2; ++i)
        if (const int code = three_groups(1, "count"); code != 0) return code;
    return 0;
}

/// summing ITEMS FOLDER [GROUP AFTER TIMES]: a run with checkpoints. After so many items, or steps,
/// since its start, the process of GROUP is killed, TIMES times in all; 0: a node throws; -1: the
/// process is stopped, once. The sink prints what it has at its end.
int summing_run(int argc, char** argv) {
    namespace summing = am::detail::summing;
    const std::string folder = argv[3];
    const bool dies = argc > 6 && group() == argv[4];
    const std::uint64_t after = dies ? std::stoull(argv[5]) : 0;
    const int times = dies ? std::atoi(argv[6]) : 0;
    std::atomic<std::uint64_t> seen{0};
    const auto die_in_time = [&] {
        if (!dies || ++seen != after) return;
        if (times == 0) throw std::runtime_error("no more of these");
        if (times < 0 && ::open((folder + "/stopped").c_str(), O_CREAT | O_EXCL, 0600) >= 0)
            ::kill(::getpid(), SIGSTOP);
        for (int i = 0; i < times; ++i)
            if (::open((folder + "/died." + std::to_string(i)).c_str(), O_CREAT | O_EXCL, 0600) >=
                0)
                ::kill(::getpid(), SIGKILL);
    };
    summing::hooks watched;
    watched.on_item = die_in_time;
    watched.between_steps = [&, steps = 0]() mutable {
        die_in_time();
        if (++steps % 32 == 0) am::this_task::sleep_for(std::chrono::milliseconds(1));
    };
    watched.on_end = [](const summing::outcome& all) {
        std::printf("items %llu sum %llu counts %llu\n", static_cast<unsigned long long>(all.items),
                    static_cast<unsigned long long>(all.sum),
                    static_cast<unsigned long long>(all.counts));
    };
    am::graph graph;
    summing::build(graph, std::stoull(argv[2]), watched);
    return am::run_main(graph, {.queue_items = 64, .batch_bytes = 512, .window_bytes = 4096});
}

/// threads N ITEMS FOLDER: as "summing", but G0 can start N threads only.
int summing_run_with_few_threads(int argc, char** argv) {
    const am::few_threads few(group() == "G0" ? std::stoi(argv[2]) : -1);
    return summing_run(argc - 1, argv + 1);
}

std::atomic<bool> enough_ticks{false};

struct ticks : am::source<int> {
    bool step(am::outlet<int>& out) {
        out.send(1);
        am::this_task::sleep_for(std::chrono::milliseconds(1));
        return group() == "G2" && !enough_ticks;
    }
    template <typename Archive>
    void serialize(Archive&) {}
};

/// parted: the parts of G1 and G2 have nothing in common. That of G1 ends at once, its process and
/// the part of G2 on SIGUSR1. Checkpoints can be taken.
int parted_run() {
    std::signal(SIGUSR1, [](int) { enough_ticks = true; });
    am::graph graph;
    for (const std::string each : {"G1", "G2"}) {
        const auto from = graph.add<ticks>("from " + each);
        const auto to = graph.add_sink<int>("to " + each, [](int) {});
        graph.pipeline(from, to);
        graph.group(each).add(from, to);
    }
    const int code = am::run_main(graph);
    if (group() != "G1") return code;
    std::signal(SIGUSR1, [](int) { ::_exit(0); });
    std::fputs("this part has ended\n", stderr);
    for (;;)
        ::pause();
}

/// Numbers that circulate through G1, G2 and G3 until they are large.
int loop_of_three_groups() {
    am::graph graph;
    auto from = graph.add_source<int>("from", [](am::outlet<int>& out) {
        for (int i = 0; i < 100; ++i)
            out.send(i);
    });
    const auto add_one = [](int n) { return n + 1; };
    auto first = graph.add_stage<int, int>("first", add_one);
    auto second = graph.add_stage<int, int>("second", add_one);
    auto third = graph.add_stage<int, int>("third", add_one);
    struct counter : am::sink<int> {
        void consume(int) { ++items; }
        void end() { std::printf("got %d\n", items); }
        int items = 0;
    };
    auto to = graph.add<counter>("to");
    auto loop =
        graph.feedback(graph.pipeline(first, second, third), [](const int& n) { return n < 500; });
    graph.pipeline(from, loop, to);
    graph.group("G1").add(from, first);
    graph.group("G2").add(second);
    graph.group("G3").add(third, to);
    return am::run_main(graph);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) return 64;
    std::string mode = argv[1];
    if (mode == "random")
        return random_pipeline_run(std::stoull(argv[2]), *argv[3] == '1', argv[4]);
    if (mode == "blocks") return random_graph_run(std::stoull(argv[2]), argv[3]);
    if (mode == "endless-blocks") {
        report(argv[3]);
        return endless_random_graph_run(std::stoull(argv[2]), argv[3]);
    }
    if (mode == "endless" || mode == "stubborn" || mode == "parent") {
        if (mode == "stubborn") std::signal(SIGTERM, SIG_IGN);
        if (mode == "parent" && ::fork() == 0) {  // A child in its own session.
            ::setsid();
            report(argv[2]);
            for (;;)
                ::pause();
        }
        report(argv[2]);
        return three_groups(0, mode);
    }
    if (mode == "summing") return summing_run(argc, argv);
    if (mode == "flowing") return three_groups(0, mode, argv[2]);
    if (mode == "orphan") leave_an_orphan();
    if (mode == "asked") return end_when_asked(argv[2]);
    if (mode == "slow" || mode == "cut") return slow_sink(mode == "cut");
    if (mode == "demand") return demand_one();
    if (mode == "says") return say_on_the_control_line(argv[2]);
    if (mode == "again") return run_twice();
    if (mode == "threads") return summing_run_with_few_threads(argc, argv);
    if (mode == "parted") return parted_run();
    if (mode == "loop") return loop_of_three_groups();
    if (mode == "stopped")
        return three_groups(0, mode, nullptr, {.silence_limit = std::chrono::milliseconds(2000)});
    if (mode == "busy")
        return three_groups(150, mode, nullptr, {.silence_limit = std::chrono::milliseconds(2000)});
    if (mode == "halted") return stopped_by_program();
    if (mode == "late") {
        if (group() != "G2")
            return three_groups(0, mode, nullptr, {.join_limit = std::chrono::milliseconds(200)});
        for (;;)
            ::pause();
    }
    if (mode == "absent" && group() == "G2") return 0;
    if (mode == "exit" && group() == "G2") return 7;
    return three_groups(1000, mode);
}
