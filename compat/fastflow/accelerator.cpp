#include <ff/accelerator.hpp>

#include "network.hpp"

namespace ff::detail {

bool accelerator::offload(void* task, unsigned long retry, unsigned long) {
    if (access::network_of(*this) == nullptr && has_input_channel_) prepare();
    const network* const net = access::network_of(*this).get();
    if (net == nullptr || net->offloaded == nullptr) {
        error("offload: the block has no input channel; example: ff_farm farm(true)\n");
        return false;
    }
    if (task == nullptr) return false;
    if (retry == static_cast<unsigned long>(-1)) {
        net->offloaded->push(task);
        return true;
    }
    for (; retry != 0; --retry) {
        if (net->offloaded->try_push(task)) return true;
        sched_yield();
    }
    return false;
}

bool accelerator::load_from(void** task, unsigned long retry, bool wait) {
    network* const net = access::network_of(*this).get();
    if (net == nullptr || !net->has_results) {
        error(
            "load_result: the block has no input channel or no output; example: ff_pipeline "
            "pipe(true)\n");
        return false;
    }
    inlet& results = net->results;
    const auto any = [](const inlet::input&) { return true; };
    for (;;) {
        std::size_t from = results.next(any);
        if (from == inlet::none) {
            if (!wait) return false;
            const bool over = net->over();
            if ((from = results.next(any)) == inlet::none) {
                if (over) {
                    *task = FF_EOS;
                    return false;
                }
                if (retry <= 1) return false;
                --retry;
                if (retry > 1UL << 32)
                    results.news.sleep_until(
                        [&] { return (from = results.next(any)) != inlet::none || net->over(); });
                else
                    sched_yield();
            }
            if (from == inlet::none) continue;
        }
        results.inputs[from].queue->try_pop(task);
        if (*task == FF_EOS_NOFREEZE || *task == FF_GO_ON || *task == FF_BLK || *task == FF_NBLK)
            continue;
        if (*task != FF_EOS && *task != FF_EOSW) return true;
        results.inputs[from].ended = true;
        if (results.left() != 0) continue;
        for (auto& each : results.inputs)
            each.ended = false;
        *task = FF_EOS;
        return !wait;
    }
}

}  // namespace ff::detail
