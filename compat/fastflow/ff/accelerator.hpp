#pragma once

#include <ff/node.hpp>

namespace ff::detail {

/// A block that a program runs by itself. With an input channel it is an accelerator: items come
/// from offload(), and go to load_result().
///
/// Owner, failure: as ff_node.
/// Threads: one offloads, one loads results.
class accelerator : public ff_node {
public:
    /// Gives an item, or FF_EOS, to the first node. Waits for room, or tries `retry` times.
    bool offload(void* task, unsigned long retry = static_cast<unsigned long>(-1),
                 unsigned long ticks = TICKS2WAIT);
    /// Waits for a result. False: the stream has ended, and `*task` is FF_EOS.
    bool load_result(void** task, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long = TICKS2WAIT) {
        return load_from(task, retry, true);
    }
    template <typename T>
    bool load_result(T*& task, unsigned long retry = static_cast<unsigned long>(-1),
                     unsigned long = TICKS2WAIT) {
        return load_from(reinterpret_cast<void**>(&task), retry, true);
    }
    /// False: there is no result now. At the end of the stream true, and `*task` is FF_EOS.
    bool load_result_nb(void** task) { return load_from(task, 1, false); }
    template <typename T>
    bool load_result_nb(T*& task) {
        return load_from(reinterpret_cast<void**>(&task), 1, false);
    }

    using ff_node::freeze;
    using ff_node::run;
    using ff_node::run_and_wait_end;
    using ff_node::run_then_freeze;
    using ff_node::stop;
    using ff_node::thaw;
    using ff_node::wait;
    using ff_node::wait_freezing;

protected:
    explicit accelerator(bool input_channel) { has_input_channel_ = input_channel; }
    void* svc(void*) override { return nullptr; }

private:
    bool load_from(void** task, unsigned long retry, bool wait);
};

}  // namespace ff::detail
