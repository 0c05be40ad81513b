#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/detail/no_thread.hpp>
#include <amalgam/core/detail/printable.hpp>
#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/flow/detail/node_body.hpp>
#include <amalgam/flow/run.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "flow/checkpoints/process_checkpoints.hpp"
#include "flow/launcher/address_exchange.hpp"
#include "flow/launcher/run_keys.hpp"
#include "flow/nodes/samples.hpp"
#include "flow/nodes/streams.hpp"
#include "flow/run/group_run.hpp"

namespace amalgam {
namespace {

using detail::run_failure;
using detail::told_error;

/// Thrown when the graph has run and failed: not a refusal.
class ended_error : public error {
public:
    using error::error;
};

/// The run is refused before any node starts: the graph, the config or an address does not fit.
[[noreturn]] void refuse(detail::address_exchange& others, status what, const std::string& sentence,
                         const std::string& told) {
    if (others.tell_refusal(told)) throw told_error(what, sentence);
    throw error(what, sentence);
}

void check(const run_options& options) {
    const auto expect = [](const char* what, std::size_t is, std::size_t most, std::size_t usual) {
        if (is >= 1 && is <= most) return;
        throw error(errc::invalid,
                    fmt::format("run_options::{} is {}, expected a number from 1 to {}; "
                                "example: {}",
                                what, is, most, usual));
    };
    constexpr std::size_t four_gib = std::size_t{1} << 32;
    const run_options usual;
    expect("queue_items", options.queue_items, detail::most_queue_items, usual.queue_items);
    expect("batch_bytes", options.batch_bytes, four_gib - 1, usual.batch_bytes);
    expect("window_bytes", options.window_bytes, four_gib << 10, usual.window_bytes);
    if (options.threads != 0)  // 0: automatic.
        expect("threads", options.threads, flow_config::max_threads, 2);
    for (const auto& [name, pool] : options.pools)
        expect(fmt::format("pools[\"{}\"].threads", detail::printable(name)).c_str(), pool.threads,
               flow_config::max_threads, 2);
    if (options.silence_limit.count() < 0)
        throw error(errc::invalid, fmt::format("run_options::silence_limit is {} ms, expected 0 or "
                                               "more; example: 5000",
                                               options.silence_limit.count()));
}

run_failure stopped_by_user() {
    return {{{errc::canceled}, "the run was stopped by its own program"}};
}

/// It ends the run, which would else go on and never be reported.
run_failure no_thread_to_report(const std::exception& why) {
    const error told = detail::no_thread("that reports on the run", why);
    return {{told.code(), told.what()}};
}

/// A graph has one run at a time.
class graph_use {
public:
    explicit graph_use(detail::graph_core& of) : of_(of) {
        if (!of_.begin_use())
            throw error(errc::invalid,
                        "the graph is already running, expected its run to have ended; "
                        "running_graph::wait() waits for that");
    }
    graph_use(const graph_use&) = delete;
    graph_use& operator=(const graph_use&) = delete;
    ~graph_use() { of_.end_use(); }

private:
    detail::graph_core& of_;
};

bool is_set(const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && *value != 0;
}

/// Whether the environment asks for a report of this process.
bool shows_reports() {
    return is_set("AMALGAM_STATS") || is_set("AMALGAM_REPORT");
}

/// `started`: from then on, the running graph stops the nodes when it ends early.
run_report run_whole(detail::graph_core& graph, const run_options& options, std::stop_token stop,
                     bool& started) {
    std::string sentence;
    status fits = graph.check(nullptr, sentence);
    if (!fits.ok()) throw error(fits, sentence);
    std::vector<std::size_t> all(graph.nodes().size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    detail::node_streams streams(graph, all, options);
    detail::local_nodes nodes(graph, all, place{}, streams, options);
    started = true;
    nodes.start();
    const std::stop_callback when_stopped(stop, [&] { nodes.fail(stopped_by_user()); });
    {
        std::optional<detail::sampler> samples;
        try {
            if (shows_reports()) samples.emplace(nodes);
        } catch (const std::exception& why) {
            nodes.fail(no_thread_to_report(why));
        }
        nodes.ended().wait();
    }
    if (auto failed = nodes.failed()) throw error(failed->what.what, failed->what.sentence);
    return nodes.report();
}

std::size_t number_of(const detail::graph_core& graph, const std::string& group) {
    const auto& names = graph.group_names();
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), group) - names.begin());
}

/// The group's endpoint, then a calling port for every other transport it needs: to send, or to ask
/// others whether a loop has ended.
std::vector<std::string> ports_of(const detail::graph_core& graph, const flow_config& config,
                                  const detail::process_id& here) {
    const auto& names = graph.group_names();
    const std::string own = config.find(names[here.group])->endpoints[here.replica];
    std::vector<std::string> ports{own};
    std::set<std::string> opened{detail::calling_port(own, own)};
    const auto call = [&](std::size_t group) {
        for (const std::string& endpoint : config.find(names[group])->endpoints)
            if (const auto [port, is_new] = opened.insert(detail::calling_port(own, endpoint));
                is_new)
                ports.push_back(*port);
    };
    for (const detail::graph_edge& edge : graph.edges()) {
        const std::size_t to = graph.nodes()[edge.to].groups.front();
        if (graph.nodes()[edge.from].groups.front() == here.group && to != here.group) call(to);
    }
    for (std::size_t i = 0; i < graph.loops(); ++i) {
        const std::vector<std::size_t> groups = detail::groups_of_loop(graph, i);
        if (groups.size() > 1 && here == detail::process_id{groups.front(), 0})
            std::for_each(groups.begin(), groups.end(), call);
    }
    return ports;
}

/// Stops an engine on every exit: its handlers use objects created before this.
struct engine_stop {
    engine& over;
    ~engine_stop() { over.stop(); }
};

/// Reports the nodes' progress to the launcher while it lives: at the interval that was asked for,
/// and whenever somebody looks.
class report_teller {
public:
    report_teller(const detail::group_run& running, engine& over, const detail::graph_core& graph,
                  detail::address_exchange& others)
        : thread_([&running, &over, &graph, &others](const std::stop_token& stop) {
              using wake = detail::address_exchange::wake;
              for (;;) {
                  switch (others.next_wake(stop)) {
                      case wake::to_report:
                          others.tell_report(running.report());
                          break;
                      case wake::to_tell_status:
                          others.tell_status(
                              status_of(running, over, graph, others.take_ults_asked()));
                          break;
                      case wake::never:
                          return;
                  }
              }
          }) {}

    static detail::address_exchange::current_status status_of(const detail::group_run& running,
                                                              engine& over,
                                                              const detail::graph_core& graph,
                                                              bool with_ults = false) {
        detail::address_exchange::current_status now{running.report(), read_metrics(over),
                                                     graph.json()};
        if (with_ults) now.ults = read_ults();
        return now;
    }

private:
    std::jthread thread_;
};

/// Addresses of all processes, by the graph's groups, for an engine with these ports.
detail::address_book meet(detail::address_exchange& others, const detail::graph_core& graph,
                          const std::string& own_address, const std::vector<std::string>& ports,
                          const run_options& options) {
    auto by_config = others.meet(own_address, graph.fingerprint(), options.join_limit);
    const flow_config& config = others.config();
    detail::address_book addresses(graph.group_names().size());
    for (std::size_t i = 0; i < by_config.size(); ++i) {
        const group_config& group = config.groups[i];
        for (std::size_t replica = 0; replica < by_config[i].size(); ++replica) {
            std::string& address = by_config[i][replica];
            const bool is_here = group.name == others.group() && replica == others.replica();
            address = is_here ? own_address
                              : detail::called_address(ports, group.endpoints[replica], address);
        }
        addresses[number_of(graph, group.name)] = std::move(by_config[i]);
    }
    return addresses;
}

/// By the graph's groups.
detail::key_book keys_of(const detail::address_exchange& others, const detail::graph_core& graph) {
    detail::key_book keys;
    for (std::size_t i = 0; i < others.keys().size(); ++i) {
        keys.resize(graph.group_names().size());
        keys[number_of(graph, others.config().groups[i].name)] = others.keys()[i];
    }
    return keys;
}

/// What cannot be in checkpoints is refused, the same in every process.
void check_checkpoints(detail::address_exchange& others, const detail::graph_core& graph) {
    if (others.checkpoints().folder.empty()) return;
    std::string sentence;
    const status can = graph.check_checkpoints(sentence);
    if (!can.ok()) refuse(others, can, sentence, sentence);
}

/// Takes part in the checkpoints of the run, if it has some.
class part_in_checkpoints {
public:
    /// `files`: nodes write to it until the last has ended.
    /// Failure: throws error{mismatch} if what is to be restored is not there.
    part_in_checkpoints(std::optional<detail::process_checkpoints>& files,
                        detail::local_nodes& nodes, const detail::graph_core& graph,
                        detail::address_exchange& others)
        : others_(others) {
        const auto& plan = others.checkpoints();
        if (plan.folder.empty()) return;
        std::optional<std::vector<detail::node_record>> restored;
        if (plan.restores != 0)
            restored = detail::read_process_record(plan.folder, plan.restores, others.label(),
                                                   graph.fingerprint())
                           .value()
                           .nodes;
        files.emplace(plan.folder, others.label(), graph.fingerprint(), nodes.running_count(),
                      [&others](std::uint64_t number, const result<void>& written) {
                          if (written) detail::record_mark("checkpoint", std::to_string(number));
                          others.tell_saved(number, written);
                      });
        nodes.take_part_in_checkpoints(files->nodes(), std::move(restored));
        others.on_checkpoint([&nodes](std::uint64_t number) { nodes.begin_checkpoint(number); });
    }
    part_in_checkpoints(const part_in_checkpoints&) = delete;
    part_in_checkpoints& operator=(const part_in_checkpoints&) = delete;
    ~part_in_checkpoints() { others_.on_checkpoint({}); }

private:
    detail::address_exchange& others_;
};

/// As run_whole().
run_report run_group(detail::graph_core& graph, const run_options& options, std::stop_token stop,
                     detail::address_exchange& others, bool& started) {
    const flow_config& config = others.config();
    std::string sentence;
    status fits = graph.check(&config, sentence);
    if (!fits.ok()) refuse(others, fits, sentence, sentence);  // The same in every process.
    check_checkpoints(others, graph);
    detail::process_id here{number_of(graph, others.group()), others.replica()};

    std::size_t threads =
        options.threads != 0 ? options.threads : config.find(others.group())->threads;
    const std::vector<std::size_t> nodes = detail::nodes_of(graph, here.group);
    engine_options how;
    how.name = others.label();
    // The engine's own stream is separate: a node that computes for long must not block its
    // answers, or others would consider this process dead.
    const std::size_t stream_count = 1 + detail::streams_for(threads, graph, nodes);
    how.streams = static_cast<unsigned>(stream_count);
    // A spinning one would keep another stream of this process from running.
    if (stream_count > detail::usable_cores()) how.spin = std::chrono::nanoseconds(0);
    how.ports.trust = others.meet_keys(options.join_limit);
    const std::vector<std::string> ports = ports_of(graph, config, here);
    engine over(ports, how);
    std::vector<execution_stream*> shared;
    for (std::size_t i = 1; i < over.stream_count(); ++i)
        shared.push_back(&over.stream(i));
    const detail::node_streams streams(graph, nodes, options, std::move(shared));

    if (const std::string& why = others.checkpoints().restart; !why.empty())
        detail::record_mark("restart", why);

    std::optional<run_failure> failed;
    std::atomic<bool> told{false};
    run_report report;
    std::optional<detail::process_checkpoints> files;
    {
        detail::group_run running(graph, config, here, over, streams, options,
                                  keys_of(others, graph), !others.checkpoints().folder.empty());
        const engine_stop before_it_ends{over};
        const part_in_checkpoints saving(files, running.nodes(), graph, others);
        running.report_failure_to(
            [&](const run_failure& why) { told = others.report_failure(why); });
        started = true;
        try {
            running.start(meet(others, graph, over.address(), ports, options));
        } catch (const std::exception& refused) {
            running.fail({{{errc::canceled}, refused.what()}, true});
            throw;
        }
        {
            const std::stop_callback when_stopped(stop, [&] { running.fail(stopped_by_user()); });
            std::optional<report_teller> teller;
            std::optional<detail::sampler> samples;
            try {
                teller.emplace(running, over, graph, others);
                if (others.report_interval().count() > 0 || shows_reports())
                    samples.emplace(running.nodes());
            } catch (const std::exception& why) {
                running.fail(no_thread_to_report(why));
            }
            running.over().wait();
        }
        failed = running.failed();
        report = running.report();
        others.tell_report(report);
        // Those who look later see the whole.
        if (others.status_was_asked())
            others.tell_status(report_teller::status_of(running, over, graph));
    }
    if (!failed) return report;
    if (told) throw told_error(failed->what.what, failed->what.sentence);
    throw ended_error(failed->what.what, failed->what.sentence);
}

run_report run_part(detail::graph_core& graph, const run_options& options, std::stop_token stop,
                    bool& started) {
    check(options);
    std::unique_ptr<detail::address_exchange> others = detail::address_exchange_from_environment();
    if (!others) return run_whole(graph, options, std::move(stop), started);
    try {
        return run_group(graph, options, std::move(stop), *others, started);
    } catch (const told_error&) {
        throw;
    } catch (const ended_error&) {
        throw;
    } catch (const error& wrong) {
        refuse(*others, wrong.code(), wrong.what(),
               fmt::format("group {}: {}", others->label(), wrong.what()));
    }
}

run_report run_until_stopped(detail::graph_core& graph, const run_options& options,
                             std::stop_token stop) {
    bool started = false;
    try {
        return run_part(graph, options, std::move(stop), started);
    } catch (...) {
        // Otherwise users of a node's channel would wait forever.
        if (!started)
            for (const detail::graph_node& node : graph.nodes())
                node.body->stop();
        throw;
    }
}

}  // namespace

run_report run(graph& what, const run_options& options) {
    const graph_use use(what.core());
    return run_until_stopped(what.core(), options, {});
}

struct running_graph::state {
    std::exception_ptr failed;
    run_report report;
    std::jthread thread;  ///< Last: ends before what it uses.
};

running_graph::running_graph(std::unique_ptr<state> made) : state_(std::move(made)) {}
running_graph::running_graph(running_graph&&) noexcept = default;
running_graph& running_graph::operator=(running_graph&&) noexcept = default;
running_graph::~running_graph() = default;

run_report running_graph::wait() {
    if (state_ == nullptr)
        throw error(errc::invalid,
                    "this running_graph was moved from; wait for the one it was moved to");
    if (state_->thread.joinable()) state_->thread.join();
    if (state_->failed) std::rethrow_exception(state_->failed);
    return state_->report;
}

void running_graph::stop() noexcept {
    if (state_ != nullptr) state_->thread.request_stop();
}

running_graph start(graph& what, const run_options& options) {
    auto made = std::make_unique<running_graph::state>();
    std::unique_ptr<graph_use> use;
    try {
        use = std::make_unique<graph_use>(what.core());
    } catch (const error&) {
        made->failed = std::current_exception();
        return running_graph(std::move(made));
    }
    made->thread = std::jthread([&core = what.core(), options, into = made.get(),
                                 use = std::move(use)](const std::stop_token& stop) {
        try {
            into->report = run_until_stopped(core, options, stop);
        } catch (...) {
            into->failed = std::current_exception();
        }
    });
    return running_graph(std::move(made));
}

namespace {

/// As requested by environment variables.
void show(const run_report& report) {
    if (const char* stats = std::getenv("AMALGAM_STATS"); stats != nullptr && *stats == '1')
        std::fputs(report.text().c_str(), stderr);
    const char* file = std::getenv("AMALGAM_REPORT");
    if (file == nullptr || *file == 0) return;
    std::ofstream to(file);
    to << report.json() << std::endl;
    if (!to)
        throw error(errc::not_found,
                    fmt::format("AMALGAM_REPORT is \"{}\", which cannot be written, "
                                "expected a file in a folder that exists",
                                file));
}

}  // namespace

int run_main(graph& what, const run_options& options) noexcept {
    try {
        if (const char* show = std::getenv("AMALGAM_SHOW"); show != nullptr && *show != 0) {
            const std::string as = show;
            if (as != "dot" && as != "json")
                throw error(errc::invalid,
                            fmt::format("AMALGAM_SHOW is \"{}\", expected dot or json", as));
            std::fputs((as == "dot" ? what.dot() : what.json()).c_str(), stdout);
            return 0;
        }
        show(run(what, options));
        return 0;
    } catch (const told_error&) {
        return 1;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "amalgam: %s\n", detail::printable(failed.what()).c_str());
        return 1;
    }
}

}  // namespace amalgam
