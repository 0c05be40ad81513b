#pragma once

#include <memory>
#include <vector>

#include "network.hpp"

namespace ff::detail {

/// Thrown by refuse(): the block cannot be connected, and why is on stderr.
struct cannot_connect {};
[[noreturn]] void refuse(const char* why);

/// The open ends of a block.
struct ends {
    std::vector<runner*> ins;
    std::vector<runner*> outs;
    bool ins_are_a_set = false;   // the first set of an all-to-all
    bool outs_are_a_set = false;  // its second set, or the workers of a farm
};

struct queue_size {
    int entries = DEFAULT_BUFFER_CAPACITY;
    bool fixed = false;
};

/// Queues between the threads of a network: who is connected to whom.
class wiring {
public:
    /// `distributed`: edges are noted, and plain nodes get as many inputs or outputs as they need.
    wiring(network& net, bool distributed) : net_(net), distributed_(distributed) {}

    void link(runner& from, runner& to, bool feedback, queue_size size, bool internal = false);
    void connect(const ends& before, const ends& after, bool feedback, queue_size size);
    /// The end of a block to its beginning. Feedback of an outer block comes before that of inner
    /// ones, as in FastFlow.
    void wrap(const ends& last, const ends& first);
    static void give_output(runner& from, const std::shared_ptr<channel>& queue, ff_node* target,
                            bool feedback);
    static void add_input(runner& to, const std::shared_ptr<channel>& queue, bool feedback);

protected:
    /// The node of `thread` that has its inputs, and the one that has its outputs.
    static ff_node* first(const runner& thread);
    static ff_node* last(const runner& thread);
    /// What a node with several outputs or inputs, an emitter or a collector asks.
    static void use(runner& thread, ff_loadbalancer& lb);
    static void use(runner& thread, ff_gatherer& gt);
    /// A node of an all-to-all's first set, or of its second, has several outputs or inputs.
    static void several_outputs(runner& thread);
    static void several_inputs(runner& thread);
    /// What it sends goes to whoever is next.
    static void send_to_any(runner& thread);
    /// Whose one output goes back has none left.
    static void take_plain(std::vector<runner*>& outs);
    static queue_size on_demand(const runner& from, queue_size size);

    network& net_;

private:
    static void widen(const ends& before, const ends& after);

    const bool distributed_;
};

}  // namespace ff::detail
