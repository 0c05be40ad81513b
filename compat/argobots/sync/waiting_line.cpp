#include "sync/waiting_line.hpp"

#include <sched.h>

namespace amalgam::argobots {

void waiting_line::locked::unlock_and_wake_one() noexcept {
    queued* const first = line_.waiting_.pop();
    unlock();
    if (first != nullptr) first->who.unpark();
}

void waiting_line::locked::unlock_and_wake_all() noexcept {
    queued* each = line_.waiting_.take_all();
    unlock();
    while (each != nullptr) {
        queued* const next = each->next;  // it is gone once unparked
        each->who.unpark();
        each = next;
    }
}

bool waiting_line::locked::unlock_and_wait(awaited what, const char* words, const deadline* until) {
    queued me(until != nullptr);
    me.who.waits_for(words);
    push(me);
    unlock();
    const blocked while_waiting(what);
    return line_.park(me, until);
}

bool waiting_line::park(queued& me, const deadline* until) {
    if (until != nullptr) {
        if (me.who.park_until(*until)) return true;
        if (me.leave()) {
            const locked hold(*this);
            waiting_.remove(me);
            return false;
        }
    }
    me.who.park();  // after a deadline, its permit is on the way
    return true;
}

void waiting_line::let_leave() noexcept {
    for (;;) {
        {
            const locked hold(*this);
            if (!waiting_.anybody_leaves()) return;
        }
        ::sched_yield();
    }
}

}  // namespace amalgam::argobots
