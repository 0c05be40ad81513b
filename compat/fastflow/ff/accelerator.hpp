#pragma once

#include <ff/block.hpp>

namespace ff::detail {

/// A block that a program runs by itself. With an input channel it is an accelerator: items come
/// from offload(), and go to load_result().
///
/// Owner, failure: as ff_node.
/// Threads: one offloads, one loads results.
class accelerator : public block {
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

protected:
    accelerator(bool input_channel, int in_entries, int out_entries, bool fixed)
        : block(in_entries, out_entries, fixed) {
        has_input_channel_ = input_channel;
    }

private:
    bool load_from(void** task, unsigned long retry, bool wait);
};

}  // namespace ff::detail
