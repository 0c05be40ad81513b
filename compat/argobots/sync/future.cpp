#include <vector>

#include "callback.hpp"
#include "sync/sync.hpp"

using namespace amalgam::argobots;

struct ABT_future_opaque {
    amalgam::argobots::waiting_line line;
    std::vector<void*> values;  ///< one for each compartment
    std::size_t set = 0;
    bool ready = false;
    void (*on_ready)(void**) = nullptr;
};

int ABT_future_create(uint32_t num_compartments, void (*cb_func)(void** arg),
                      ABT_future* newfuture) {
    return guarded([=] {
        auto made = std::make_unique<ABT_future_opaque>();
        made->values.resize(num_compartments);
        made->on_ready = cb_func;
        made->ready = num_compartments == 0;
        *newfuture = made.release();
        return ABT_SUCCESS;
    });
}

int ABT_future_free(ABT_future* future) {
    if (*future == nullptr) return ABT_ERR_INV_FUTURE;
    { const waiting_line::locked after_set((*future)->line); }
    delete *future;
    *future = nullptr;
    return ABT_SUCCESS;
}

int ABT_future_wait(ABT_future future) {
    if (future == nullptr) return ABT_ERR_INV_FUTURE;
    if (caller_may_not_wait()) return ABT_ERR_FUTURE;
    waiting_line::locked hold(future->line);
    if (!future->ready) hold.unlock_and_wait({ABT_SYNC_EVENT_TYPE_FUTURE, future}, "future");
    return ABT_SUCCESS;
}

int ABT_future_test(ABT_future future, ABT_bool* is_ready) {
    if (future == nullptr) return ABT_ERR_INV_FUTURE;
    const waiting_line::locked hold(future->line);
    *is_ready = future->ready;
    return ABT_SUCCESS;
}

// The callback runs before the future is ready, so that waiters see its work. It may wait.
int ABT_future_set(ABT_future future, void* value) {
    if (future == nullptr) return ABT_ERR_INV_FUTURE;
    {
        const waiting_line::locked hold(future->line);
        if (future->set >= future->values.size()) return ABT_ERR_FUTURE;
        future->values[future->set++] = value;
        if (future->set != future->values.size()) return ABT_SUCCESS;
    }
    if (future->on_ready != nullptr)
        called("an exception escaped from a future's callback",
               [future] { future->on_ready(future->values.data()); });
    waiting_line::locked hold(future->line);
    future->ready = true;
    hold.unlock_and_wake_all();
    return ABT_SUCCESS;
}

int ABT_future_reset(ABT_future future) {
    if (future == nullptr) return ABT_ERR_INV_FUTURE;
    const waiting_line::locked hold(future->line);
    future->set = 0;
    future->ready = future->values.empty();
    return ABT_SUCCESS;
}
