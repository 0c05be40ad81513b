#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <amalgam/fabric/loop.hpp>
#include <amalgam/flow/graph.hpp>
#include <amalgam/rpc/engine.hpp>

#include "flow/run/group_run.hpp"

namespace amalgam::detail {

/// A configuration of two groups, as most tests have it.
inline constexpr const char* two_groups = R"({"groups": {"G0": {"endpoint": "loop://G0"},
                                                         "G1": {"endpoint": "loop://G1"}}})";

/// All processes of a run inside this one, on a deterministic network: for tests.
///
/// Threads: one, which also drives the network.
class simulated_run {
public:
    /// One process: its own graph, engine and run.
    struct process {
        process_id where;
        std::string label;
        graph built;
        std::unique_ptr<engine> over;
        std::unique_ptr<snapshot> saved;  ///< If the run takes checkpoints.
        std::unique_ptr<group_run> running;
        std::optional<std::vector<node_record>> restored;               ///< Set before start().
        std::map<std::uint64_t, std::vector<node_record>> checkpoints;  ///< Whole ones.
    };

    /// `build` makes the graph; called once per process, with its number.
    simulated_run(std::string config_json, run_options options,
                  std::function<void(graph&, const process_id&)> build, loop_options network = {})
        : net(network), config(parse_flow_config(config_json).value()), options_(options) {
        for (std::size_t g = 0; g < config.groups.size(); ++g) {
            for (std::size_t r = 0; r < config.groups[g].replicas(); ++r) {
                auto one = std::make_unique<process>();
                one->where = {g, r};
                one->label = process_label(config.groups[g], r);
                build(one->built, one->where);
                processes.push_back(std::move(one));
            }
        }
    }
    ~simulated_run() {
        for (auto& one : processes)
            if (one->over) one->over->stop();
        net.run_until_idle();
    }

    /// Opens the process's endpoint, and starts its part.
    void start(process& one) {
        std::string sentence;
        status fits = one.built.core().check(&config, sentence);
        if (!fits.ok()) throw error(fits, sentence);
        engine_options how;
        how.name = one.label;
        one.over = std::make_unique<engine>(net.port(one.label, ports), how);
        const node_streams streams(one.built.core(), {}, options_, {&one.over->stream()});
        one.running = std::make_unique<group_run>(one.built.core(), config, one.where, *one.over,
                                                  streams, options_, key_book{}, takes_checkpoints);
        if (takes_checkpoints) {
            local_nodes& nodes = one.running->nodes();
            one.saved = std::make_unique<snapshot>(
                nodes.running_count(), [&one](std::uint64_t number, std::vector<node_record> all) {
                    one.checkpoints[number] = std::move(all);
                });
            nodes.take_part_in_checkpoints(*one.saved, one.restored);
        }
        address_book addresses;
        for (const group_config& group : config.groups) {
            addresses.emplace_back();
            for (std::size_t r = 0; r < group.replicas(); ++r)
                addresses.back().push_back("loop://" + process_label(group, r));
        }
        if (misinform) misinform(one, addresses);
        one.running->start(addresses);
    }
    void start_all() {
        for (auto& one : processes)
            start(*one);
    }

    /// Runs until nothing happens any more. Each process leaves soon after its own run is over, as
    /// a real one does: it only finishes sending.
    void run_until_idle() {
        constexpr auto step = std::chrono::microseconds(100);
        const auto limit = net.now() + std::chrono::seconds(10);
        while (net.now() < limit && !over()) {
            std::vector<process*> ended;
            for (auto& one : processes)
                if (one->running && one->running->over().is_set()) ended.push_back(one.get());
            net.run_for(step);
            for (process* one : ended)
                one->over->stop();
        }
        net.run_until_idle();
    }

    process& operator[](std::size_t i) { return *processes[i]; }
    bool over() const {
        for (auto& one : processes)
            if (!one->running || !one->running->over().is_set()) return false;
        return true;
    }
    /// The sentence a process ended with; empty on success.
    std::string failure_of(std::size_t i) const {
        auto failed = processes[i]->running->failed();
        return failed ? failed->what.sentence : "";
    }

    loop_network net;
    flow_config config;
    std::vector<std::unique_ptr<process>> processes;
    port_options ports;
    bool takes_checkpoints = false;  ///< Set before start().
    /// May change a process's view of the others' addresses.
    std::function<void(const process&, address_book&)> misinform;

private:
    run_options options_;
};

}  // namespace amalgam::detail
