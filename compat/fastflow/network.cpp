#include "network.hpp"

namespace ff::detail {

bool network::over() const {
    for (const runner* each : results_from)
        if (!each->over()) return false;
    return true;
}

bool network::outdated() const {
    for (const auto& each : runners)
        if (each->outdated) return true;
    return false;
}
bool network::begun() const {
    for (const auto& each : runners)
        if (each->begun()) return true;
    return false;
}

namespace {
void move_items(channel& from, channel& to) {
    for (void* item = nullptr; from.try_pop(&item);)
        to.push(item);
}
}  // namespace

void network::take_over(network& former) {
    if (former.offloaded != nullptr && offloaded != nullptr)
        move_items(*former.offloaded, *offloaded);
    auto& before = former.results.inputs;
    auto& now = results.inputs;
    for (std::size_t at = 0; at != before.size() && at != now.size(); ++at) {
        move_items(*before[at].queue, *now[at].queue);
        now[at].ended = before[at].ended;
    }
}

void outdate(ff_node& changed) {
    for (const auto& each : access::threads(changed))
        each->outdated = true;
}

network::~network() {
    for (const auto& thread : runners)
        thread->abandon();
    for (const auto& thread : runners) {
        for (const auto& each : thread->in.inputs)
            each.queue->close();
    }
    for (const auto& thread : runners) {
        thread->wait();
        // These and their thread point to one another.
        if (thread->own_lb != nullptr) access::thread(*thread->own_lb) = nullptr;
        if (thread->own_gt != nullptr) access::thread(*thread->own_gt) = nullptr;
    }
}

}  // namespace ff::detail
