#include "flow/run/group_run.hpp"

#include <utility>

namespace amalgam::detail {

std::vector<std::size_t> nodes_of(const graph_core& graph, std::size_t group) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < graph.nodes().size(); ++i)
        if (graph.nodes()[i].groups.front() == group) found.push_back(i);
    return found;
}

group_run::group_run(graph_core& graph, const flow_config& config, process_id here, engine& over,
                     const node_streams& streams, const run_options& options, key_book keys,
                     bool takes_marks)
    : nodes_(graph, nodes_of(graph, here.group),
             place{.group = graph.group_names()[here.group],
                   .replica = here.replica,
                   .replicas = config.find(graph.group_names()[here.group])->replicas()},
             streams, options),
      run_{graph, config, here, over, nodes_, options, std::move(keys), takes_marks, {}},
      channels_(run_, [this](process_id receiver,
                             const failure& why) { others_.lose_receiver(receiver, why); }),
      others_(run_, channels_),
      calls_(run_, channels_, others_),
      loops_(run_) {
    nodes_.on_failure([this] {
        channels_.stop();
        others_.stop_waiting();
    });
    others_.serve();  // Last: a process that has joined calls the others.
}

void group_run::start(address_book addresses) {
    supervisor_ = spawn(run_.over.stream(),
                        [this, addresses = std::move(addresses)] { supervise(addresses); });
}

void group_run::supervise(const address_book& addresses) {
    const clock::time_point deadline = run_.over.now() + run_.options.join_limit;
    ult senders = spawn(run_.over.stream(), [this, deadline] { others_.expect_senders(deadline); });
    ult liveness = spawn(run_.over.stream(), [this] {
        others_.check_liveness([this](clock::duration pause) { return loops_.are_watched(pause); });
    });
    if (others_.join_all(addresses)) {
        nodes_.start();
        loops_.watch_all(addresses);
        nodes_.ended().wait();
    }
    others_.close();
    loops_.join();
    senders.join();
    liveness.join();
    over_here_.set();
}

}  // namespace amalgam::detail
