#include <ctime>

#include <amalgam/tasks/extension/cpu_relax.hpp>

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

class locked_queue {
public:
    explicit locked_queue(ABT_cond_opaque& which) noexcept : busy_(which.busy) {
        while (busy_.exchange(true, std::memory_order_acquire))
            detail::cpu_relax();
    }
    ~locked_queue() { busy_.store(false, std::memory_order_release); }
    locked_queue(const locked_queue&) = delete;
    locked_queue& operator=(const locked_queue&) = delete;

private:
    std::atomic<bool>& busy_;
};

bool leave_queue(ABT_cond_opaque& cond, queued& me) noexcept {
    const locked_queue hold(cond);
    return cond.waiting.remove(me);
}

using deadline = std::chrono::steady_clock::time_point;

/// False: the deadline passed first. The mutex is locked again either way.
bool wait_unlocked(ABT_cond_opaque& cond, ABT_mutex_opaque& mutex, const deadline* until) {
    bool told = true;
    {
        queued me;
        me.who.waits_for("condition variable");
        {
            const locked_queue hold(cond);
            cond.waiting.push(me);
        }
        const blocked while_waiting;
        mutex.lock.unlock();
        if (until == nullptr) {
            me.who.park();
        } else if (!me.who.park_until(*until)) {
            told = !leave_queue(cond, me);
            if (told) me.who.park();  // its permit is on the way
        }
    }
    mutex.lock.lock();
    return told;
}

int wait_for(ABT_cond cond, ABT_mutex mutex, const deadline* until) {
    if (cond == nullptr) return ABT_ERR_INV_COND;
    if (caller_is_tasklet()) return ABT_ERR_COND;
    if (mutex == nullptr || mutex->depth != 0) return ABT_ERR_INV_MUTEX;
    {
        const locked_queue hold(*cond);
        if (!cond->waiting.empty() && cond->with != mutex) return ABT_ERR_INV_MUTEX;
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
    queued* first = nullptr;
    {
        const locked_queue hold(*cond);
        first = cond->waiting.pop();
    }
    if (first != nullptr) first->who.unpark();
    return ABT_SUCCESS;
}

int ABT_cond_broadcast(ABT_cond cond) {
    if (cond == nullptr) return ABT_ERR_INV_COND;
    queued* each = nullptr;
    {
        const locked_queue hold(*cond);
        each = cond->waiting.take_all();
    }
    while (each != nullptr) {
        queued* const next = each->next;  // it is gone once unparked
        each->who.unpark();
        each = next;
    }
    return ABT_SUCCESS;
}
