#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "runner.hpp"

namespace ff::detail {

/// A queue and its two ends. Numbered alike in all processes of a distributed program.
struct edge {
    runner* from;
    runner* to;
    std::shared_ptr<channel> queue;
    bool feedback;
    bool internal;  ///< Between the two sets of an all-to-all, or inside a farm.
};

/// All threads and queues of an outermost block.
///
/// Owner: the block. Its end asks the threads to end and joins them.
class network {
public:
    network() = default;
    ~network();

    std::vector<std::shared_ptr<runner>> runners;
    std::vector<edge> edges;  // of a distributed program

    // Of a block with an input channel.
    std::shared_ptr<channel> offloaded;
    bool has_results = false;
    inlet results;
    std::vector<runner*> results_from;
    /// No result will come.
    bool over() const;
    bell offload_room;
};

/// Makes the threads and queues of `whole`. Null: it cannot be connected, and why is on stderr.
/// `group_of`: the group that a block was put into itself, or null.
using placement = std::function<const std::string*(const ff_node&)>;
std::shared_ptr<network> expand(ff_node& whole, bool input_channel,
                                const placement& group_of = nullptr);

/// Null, or how DFF_Init() wants outermost blocks to run. False: as if it were not there.
extern bool (*distributed_run)(ff_node& whole, int& result);

/// For all_gather(): one item from each input that has not ended.
int gather_all(runner& thread, void* task, void** items);
/// The forward input that the item in svc() came from.
ssize_t gathered_from(const runner& thread);

void print_stats(const runner& thread, std::ostream& out);

}  // namespace ff::detail
