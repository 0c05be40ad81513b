#include <cstring>
#include <memory>

#include "sync/sync.hpp"

using namespace amalgam::argobots;

int ABT_eventual_create(int nbytes, ABT_eventual* neweventual) {
    *neweventual = nullptr;
    if (nbytes < 0) return ABT_ERR_INV_ARG;
    return guarded([=] {
        auto made = std::make_unique<ABT_eventual_opaque>();
        if (nbytes != 0) made->value = ::operator new(static_cast<std::size_t>(nbytes));
        made->bytes = nbytes;
        *neweventual = made.release();
        return ABT_SUCCESS;
    });
}

int ABT_eventual_free(ABT_eventual* eventual) {
    if (*eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    { const locked_by_caller after_set((*eventual)->lock); }
    ::operator delete((*eventual)->value);
    delete *eventual;
    *eventual = nullptr;
    return ABT_SUCCESS;
}

int ABT_eventual_wait(ABT_eventual eventual, void** value) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    if (caller_is_tasklet()) return ABT_ERR_EVENTUAL;
    locked_by_caller hold(eventual->lock);
    while (!eventual->ready)
        hold.wait(eventual->changed);
    if (value != nullptr) *value = eventual->value;
    return ABT_SUCCESS;
}

int ABT_eventual_timedwait(ABT_eventual eventual, void** value, const struct timespec* abstime) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    if (caller_is_tasklet()) return ABT_ERR_EVENTUAL;
    const auto until = deadline_at(*abstime);
    locked_by_caller hold(eventual->lock);
    while (!eventual->ready) {
        if (!hold.wait_until(eventual->changed, until) && !eventual->ready)
            return ABT_ERR_COND_TIMEDOUT;
    }
    if (value != nullptr) *value = eventual->value;
    return ABT_SUCCESS;
}

int ABT_eventual_test(ABT_eventual eventual, void** value, ABT_bool* is_ready) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    const locked_by_caller hold(eventual->lock);
    *is_ready = eventual->ready;
    if (eventual->ready && value != nullptr) *value = eventual->value;
    return ABT_SUCCESS;
}

int ABT_eventual_set(ABT_eventual eventual, void* value, int nbytes) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    if (nbytes < 0 || nbytes > eventual->bytes) return ABT_ERR_INV_ARG;
    const locked_by_caller hold(eventual->lock);
    if (eventual->ready) return ABT_ERR_EVENTUAL;
    if (nbytes != 0 && value != nullptr)
        std::memcpy(eventual->value, value, static_cast<std::size_t>(nbytes));
    eventual->ready = true;
    eventual->changed.notify_all();
    return ABT_SUCCESS;
}

int ABT_eventual_reset(ABT_eventual eventual) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    const locked_by_caller hold(eventual->lock);
    eventual->ready = false;
    return ABT_SUCCESS;
}
