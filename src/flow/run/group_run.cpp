#include "flow/run/group_run.hpp"

#include <utility>

namespace amalgam::detail {

std::vector<std::size_t> nodes_of(const graph_core& graph, std::size_t group) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < graph.nodes().size(); ++i)
        if (graph.nodes()[i].groups.front() == group) found.push_back(i);
    return found;
}

group_run::group_run(graph_core& graph, const flow_config& config, seat here, engine& over,
                     const node_streams& streams, const run_options& options)
    : over_(over),
      options_(options),
      part_(graph, nodes_of(graph, here.group),
            place{.group = graph.group_names()[here.group],
                  .replica = here.replica,
                  .replicas = config.find(graph.group_names()[here.group])->replicas()},
            streams, options),
      exchange_(graph, config, here, over, part_, options) {}

void group_run::start(address_book addresses) {
    supervisor_ =
        spawn(over_.stream(), [this, addresses = std::move(addresses)] { supervise(addresses); });
}

void group_run::supervise(const address_book& addresses) {
    ult senders = spawn(over_.stream(), [this, deadline = over_.now() + options_.join_limit] {
        exchange_.expect_senders(deadline);
    });
    ult pulses = spawn(over_.stream(), [this] { exchange_.feel_pulses(); });
    if (exchange_.join_all(addresses)) {
        part_.start();
        exchange_.watch_loops(addresses);
        part_.ended().wait();
    }
    exchange_.close();
    senders.join();
    pulses.join();
    over_here_.set();
}

}  // namespace amalgam::detail
