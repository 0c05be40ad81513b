#include "tasks/streams/poller_set.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <amalgam/core/status.hpp>

#include "tasks/streams/stream_loop.hpp"

namespace amalgam {

// Not in line: the compiler would compare each poller's with these before it calls them.
bool poller::has_work() noexcept {
    return true;
}

bool poller::has_more() noexcept {
    return has_work();
}

}  // namespace amalgam

namespace amalgam::detail {

void poller_set::add(poller& what) {
    const std::lock_guard hold(lock_);
    next_.reserve(wanted_.size() + 1);
    wanted_.push_back(&what);
    count_change();
}

/// Under the lock.
void poller_set::count_change() noexcept {
    only_.store(nullptr, std::memory_order_seq_cst);  // See end_use().
    version_.fetch_add(1, std::memory_order_seq_cst);
}

bool poller_set::any() {
    const std::lock_guard hold(lock_);
    return !wanted_.empty();
}

bool poller_set::erase(poller& what) {
    const auto found = std::find(wanted_.begin(), wanted_.end(), &what);
    if (found == wanted_.end()) return false;
    wanted_.erase(found);
    count_change();
    return true;
}

void poller_set::blank(poller& what) noexcept {
    // poll() may be iterating over the copy: it skips null entries.
    std::replace(current_.begin(), current_.end(), &what, static_cast<poller*>(nullptr));
}

bool poller_set::remove(poller& what, stream_loop& of) {
    if (of.driven_here()) {
        const std::lock_guard hold(lock_);
        blank(what);
        return erase(what);
    }
    std::optional<remover> me;  // Not before it must wait: there are callers that cannot.
    {
        const std::lock_guard hold(lock_);
        if (!erase(what)) return false;
        if (!used_seen()) {
            blank(what);
            return true;
        }
        try {
            me.emplace();
        } catch (const error&) {
            wanted_.push_back(&what);  // No allocation: it was there.
            count_change();
            throw;
        }
        me->next = removers_;
        removers_ = &*me;
    }
    of.wake();
    me->who.waits_for("poller to be removed");
    me->who.park();
    return true;
}

void poller_set::renew() noexcept {
    remover* waiting = nullptr;
    {
        const std::lock_guard hold(lock_);
        waiting = renew_locked();
    }
    tell(waiting);
}

/// For who had it in use: whoever begins to use it after the look sees that the list changed, and
/// waits for the lock.
[[gnu::noinline]] void poller_set::renew_unless_used() noexcept {
    remover* waiting = nullptr;
    {
        const std::lock_guard hold(lock_);
        if (used_seen()) return;
        waiting = renew_locked();
    }
    tell(waiting);
}

/// Returns who waited for it.
poller_set::remover* poller_set::renew_locked() noexcept {
    if (current_.capacity() < wanted_.size()) current_.swap(next_);
    current_ = wanted_;  // No allocation: add() reserved capacity.
    current_version_.store(version_.load(std::memory_order_relaxed), std::memory_order_release);
    only_.store(current_.size() == 1 ? current_.front() : nullptr, std::memory_order_release);
    return std::exchange(removers_, nullptr);
}

void poller_set::tell(remover* first) noexcept {
    while (first != nullptr)
        std::exchange(first, first->next)->who.unpark();
}

[[gnu::noinline]] bool poller_set::any_has_work() noexcept {
    if (has_changed()) return true;
    return std::any_of(current_.begin(), current_.end(),
                       [](poller* each) { return each != nullptr && each->has_work(); });
}

[[gnu::noinline]] bool poller_set::any_has_more() noexcept {
    if (has_changed()) return true;
    return std::any_of(current_.begin(), current_.end(),
                       [](poller* each) { return each != nullptr && each->has_more(); });
}

[[gnu::noinline]] std::size_t poller_set::poll_all() noexcept {
    if (has_changed()) renew();
    std::size_t happened = 0;
    for (std::size_t i = 0; i < current_.size(); ++i) {
        if (current_[i] == nullptr) continue;
        happened += current_[i]->poll();
        dispatcher::stay_in_parent();
    }
    return happened;
}

bool poller_set::prepare_to_sleep() noexcept {
    if (has_changed(std::memory_order_acquire)) return false;
    return std::all_of(current_.begin(), current_.end(),
                       [](poller* each) { return each == nullptr || each->prepare_to_sleep(); });
}

}  // namespace amalgam::detail
