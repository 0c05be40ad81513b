#include <ctime>

#include "sync/sync.hpp"

using namespace amalgam::argobots;

namespace amalgam::argobots {

std::chrono::steady_clock::time_point deadline_at(const timespec& realtime) noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    // As double, in which no time overflows, and near ones are exact enough.
    const double seconds = static_cast<double>(realtime.tv_sec) - static_cast<double>(now.tv_sec);
    const double rest = static_cast<double>(realtime.tv_nsec) - static_cast<double>(now.tv_nsec);
    return detail::deadline_after(std::chrono::duration<double>(seconds + rest * 1e-9));
}

namespace {

using deadline = waiting_line::deadline;

/// False: the deadline passed first. The mutex is locked again either way.
bool wait_unlocked(ABT_cond_opaque& cond, ABT_mutex_opaque& mutex, const deadline* until) {
    bool told = true;
    {
        queued me(until != nullptr);
        me.who.waits_for("condition variable");
        waiting_line::locked(cond.line).push(me);
        const blocked while_waiting({ABT_SYNC_EVENT_TYPE_COND, &cond});
        mutex.lock.unlock();
        told = cond.line.park(me, until);
    }
    mutex.lock.lock({ABT_SYNC_EVENT_TYPE_MUTEX, &mutex});
    return told;
}

int wait_for(ABT_cond cond, ABT_mutex mutex, const deadline* until) {
    if (cond == nullptr) return ABT_ERR_INV_COND;
    if (caller_may_not_wait()) return ABT_ERR_COND;
    if (mutex == nullptr || mutex->depth != 0) return ABT_ERR_INV_MUTEX;
    {
        const waiting_line::locked hold(cond->line);
        if (hold.anybody() && cond->with != mutex) return ABT_ERR_INV_MUTEX;
        cond->with = mutex;
    }
    const void* const owner = mutex->owner.exchange(nullptr, std::memory_order_relaxed);
    const bool told = wait_unlocked(*cond, *mutex, until);
    mutex->owner.store(owner, std::memory_order_relaxed);
    return told ? ABT_SUCCESS : ABT_ERR_COND_TIMEDOUT;
}

}  // namespace

}  // namespace amalgam::argobots

int ABT_cond_create(ABT_cond* newcond) {
    return guarded([newcond] {
        *newcond = new ABT_cond_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_cond_free(ABT_cond* cond) {
    if (*cond == nullptr) return ABT_ERR_INV_COND;
    (*cond)->line.let_leave();
    delete *cond;
    *cond = nullptr;
    return ABT_SUCCESS;
}

int ABT_cond_wait(ABT_cond cond, ABT_mutex mutex) {
    return wait_for(cond, mutex, nullptr);
}

int ABT_cond_timedwait(ABT_cond cond, ABT_mutex mutex, const struct timespec* abstime) {
    const auto until = deadline_at(*abstime);
    return wait_for(cond, mutex, &until);
}

int ABT_cond_signal(ABT_cond cond) {
    if (cond == nullptr) return ABT_ERR_INV_COND;
    waiting_line::locked(cond->line).unlock_and_wake_one();
    return ABT_SUCCESS;
}

int ABT_cond_broadcast(ABT_cond cond) {
    if (cond == nullptr) return ABT_ERR_INV_COND;
    waiting_line::locked(cond->line).unlock_and_wake_all();
    return ABT_SUCCESS;
}
