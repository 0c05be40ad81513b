#pragma once

#include <iosfwd>
#include <memory>
#include <vector>

#include "runner.hpp"

namespace ff::detail {

/// All threads and queues of an outermost block.
///
/// Owner: the block. Its end asks the threads to end and joins them.
class network {
public:
    network() = default;
    ~network();

    std::vector<std::shared_ptr<runner>> runners;

    // Of a block with an input channel.
    std::shared_ptr<channel> offloaded;
    bool has_results = false;
    inlet results;
    bell offload_room;
};

/// Makes the threads and queues of `whole`. Null: it cannot be connected, and why is on stderr.
std::shared_ptr<network> expand(ff_node& whole, bool input_channel);

/// For all_gather(): one item from each input that has not ended.
int gather_all(runner& thread, void* task, void** items);
/// The forward input that the item in svc() came from.
ssize_t gathered_from(const runner& thread);

void print_stats(const runner& thread, std::ostream& out);

}  // namespace ff::detail
