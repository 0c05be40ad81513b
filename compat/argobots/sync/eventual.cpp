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
    (*eventual)->line.let_leave();
    ::operator delete((*eventual)->value);
    delete *eventual;
    *eventual = nullptr;
    return ABT_SUCCESS;
}

static int wait_for(ABT_eventual eventual, void** value, const waiting_line::deadline* until) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    if (caller_may_not_wait()) return ABT_ERR_EVENTUAL;
    waiting_line::locked hold(eventual->line);
    void* const where = eventual->value;
    if (!eventual->ready &&
        !hold.unlock_and_wait({ABT_SYNC_EVENT_TYPE_EVENTUAL, eventual}, "eventual", until))
        return ABT_ERR_COND_TIMEDOUT;
    if (value != nullptr) *value = where;
    return ABT_SUCCESS;
}

int ABT_eventual_wait(ABT_eventual eventual, void** value) {
    return wait_for(eventual, value, nullptr);
}

int ABT_eventual_timedwait(ABT_eventual eventual, void** value, const struct timespec* abstime) {
    const auto until = deadline_at(*abstime);
    return wait_for(eventual, value, &until);
}

int ABT_eventual_test(ABT_eventual eventual, void** value, ABT_bool* is_ready) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    const waiting_line::locked hold(eventual->line);
    *is_ready = eventual->ready;
    if (eventual->ready && value != nullptr) *value = eventual->value;
    return ABT_SUCCESS;
}

int ABT_eventual_set(ABT_eventual eventual, void* value, int nbytes) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    if (nbytes < 0 || nbytes > eventual->bytes) return ABT_ERR_INV_ARG;
    waiting_line::locked hold(eventual->line);
    if (eventual->ready) return ABT_ERR_EVENTUAL;
    if (nbytes != 0 && value != nullptr)
        std::memcpy(eventual->value, value, static_cast<std::size_t>(nbytes));
    eventual->ready = true;
    hold.unlock_and_wake_all();
    return ABT_SUCCESS;
}

int ABT_eventual_reset(ABT_eventual eventual) {
    if (eventual == nullptr) return ABT_ERR_INV_EVENTUAL;
    const waiting_line::locked hold(eventual->line);
    eventual->ready = false;
    return ABT_SUCCESS;
}
