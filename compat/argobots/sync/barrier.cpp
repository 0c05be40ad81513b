#include "sync/sync.hpp"

using namespace amalgam::argobots;

struct ABT_barrier_opaque {
    amalgam::argobots::waiting_line line;
    std::uint32_t expected = 0;
    std::uint32_t arrived = 0;
};
/// The same: see the guide.
struct ABT_xstream_barrier_opaque : ABT_barrier_opaque {};

namespace {

int wait_in(ABT_barrier_opaque& barrier) {
    waiting_line::locked hold(barrier.line);
    if (++barrier.arrived >= barrier.expected) {
        barrier.arrived = 0;
        hold.unlock_and_wake_all();
    } else {
        hold.unlock_and_wait({ABT_SYNC_EVENT_TYPE_BARRIER, &barrier}, "barrier");
    }
    return ABT_SUCCESS;
}

template <typename Barrier>
int create(std::uint32_t waiters, Barrier** made) {
    *made = nullptr;
    if (waiters == 0) return ABT_ERR_INV_ARG;
    return guarded([=] {
        *made = new Barrier;
        (*made)->expected = waiters;
        return ABT_SUCCESS;
    });
}

template <typename Barrier>
void free_barrier(Barrier** barrier) {
    { const waiting_line::locked after_wait((*barrier)->line); }
    delete *barrier;
    *barrier = nullptr;
}

}  // namespace

int ABT_barrier_create(uint32_t num_waiters, ABT_barrier* newbarrier) {
    return create(num_waiters, newbarrier);
}

int ABT_barrier_reinit(ABT_barrier barrier, uint32_t num_waiters) {
    if (barrier == nullptr) return ABT_ERR_INV_BARRIER;
    if (num_waiters == 0) return ABT_ERR_INV_ARG;
    const waiting_line::locked hold(barrier->line);
    if (barrier->arrived != 0) return ABT_ERR_BARRIER;
    barrier->expected = num_waiters;
    return ABT_SUCCESS;
}

int ABT_barrier_free(ABT_barrier* barrier) {
    if (*barrier == nullptr) return ABT_ERR_INV_BARRIER;
    free_barrier(barrier);
    return ABT_SUCCESS;
}

int ABT_barrier_wait(ABT_barrier barrier) {
    if (barrier == nullptr) return ABT_ERR_INV_BARRIER;
    return caller_may_not_wait() ? ABT_ERR_BARRIER : wait_in(*barrier);
}

int ABT_barrier_get_num_waiters(ABT_barrier barrier, uint32_t* num_waiters) {
    if (barrier == nullptr) return ABT_ERR_INV_BARRIER;
    *num_waiters = barrier->expected;
    return ABT_SUCCESS;
}

int ABT_xstream_barrier_create(uint32_t num_waiters, ABT_xstream_barrier* newbarrier) {
    return create(num_waiters, newbarrier);
}

int ABT_xstream_barrier_free(ABT_xstream_barrier* barrier) {
    if (*barrier == nullptr) return ABT_ERR_INV_XSTREAM_BARRIER;
    free_barrier(barrier);
    return ABT_SUCCESS;
}

int ABT_xstream_barrier_wait(ABT_xstream_barrier barrier) {
    if (barrier == nullptr) return ABT_ERR_INV_XSTREAM_BARRIER;
    return between_ults::here() ? ABT_ERR_XSTREAM_BARRIER : wait_in(*barrier);
}
