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

    /// A block was changed since.
    bool outdated() const;
    /// One of the threads was started, and not waited for.
    bool begun() const;
    /// What was offloaded to `former`, and those of its results that nobody has loaded.
    void take_over(network& former);
};

/// `changed`, or a block that it is in, was changed: the outermost one makes its threads anew when
/// it runs, or is thawed.
void outdate(ff_node& changed);

/// Makes the threads and queues of `whole`. Null: it cannot be connected, and why is on stderr.
/// `group_of`: the group that a block was put into itself, or null.
using placement = std::function<const std::string*(const ff_node&)>;
std::shared_ptr<network> expand(ff_node& whole, bool input_channel,
                                const placement& group_of = nullptr);

/// Null, or how DFF_Init() wants outermost blocks to run. False: as if it were not there.
extern bool (*distributed_run)(ff_node& whole, int& result);

/// A load balancer or gatherer of the program's, deleted in the end if `cleanup`. Empty, with a
/// sentence on stderr: `given` is null.
template <typename T>
std::shared_ptr<T> shared_if(T* given, bool cleanup, const char* function) {
    if (given != nullptr)
        return std::shared_ptr<T>(given, [cleanup](T* each) {
            if (cleanup) delete each;
        });
    error("%s: a null pointer, expected an object\n", function);
    return nullptr;
}

/// The threads of `node`, which is part of a block that is expanded. False: they run already, or
/// one cannot be started. `frozen`: they freeze at the end of their stream.
bool announce_threads(ff_node& node);
bool start_threads(ff_node& node, bool frozen);

/// For all_gather(): one item from each forward input that has not ended.
int gather_all(runner& thread, void* task, void** items);
/// The input that the item in svc() came from, counted among its kind. Below 0: none.
struct came_from {
    ssize_t channel;
    bool feedback;
};
came_from gathered_from(const runner& thread);

void print_stats(const runner& thread, std::ostream& out);

}  // namespace ff::detail
