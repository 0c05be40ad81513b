#pragma once

#include <ff/node.hpp>
#include <ff/parallel_for.hpp>

namespace ff {

/// A node whose svc() may run loops.
template <typename In, typename Out = In, typename T = int>
class ff_Map : public ff_node_t<In, Out>, public ParallelForReduce<T> {
public:
    explicit ff_Map(size_t threads = static_cast<size_t>(FF_AUTO), bool = false)
        : ParallelForReduce<T>(static_cast<long>(threads)) {}
    void disableScheduler(bool = true) {}
    using ff_node::ffTime;
    using ff_node::ffwTime;
    using ff_node::run;
    using ff_node::run_then_freeze;
    using ff_node::wait;
    using ff_node::wait_freezing;
};

}  // namespace ff
