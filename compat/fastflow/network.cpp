#include "network.hpp"

namespace ff::detail {

bool network::over() const {
    for (const runner* each : results_from)
        if (!each->over()) return false;
    return true;
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
