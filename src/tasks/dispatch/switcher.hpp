#pragma once

#include <atomic>
#include <utility>

#include <amalgam/tasks/parking.hpp>

#include "tasks/dispatch/block_cache.hpp"
#include "tasks/dispatch/join_state.hpp"
#include "tasks/dispatch/ready_work.hpp"
#include "tasks/dispatch/ult_core.hpp"
#include "tasks/stacks/call_stack.hpp"
#include "tasks/stacks/recycler.hpp"

namespace amalgam::detail {

/// What the thread that runs a stream lends it.
struct thread_caches {
    exception_state* exceptions = nullptr;
    free_stock* stock = nullptr;
    block_cache* blocks = nullptr;
};

/// Switches between call stacks: those of ULTs, and that of the stream's loop.
///
/// A ULT being left must not be visible to others before its context is saved, or another stream
/// would run it on a stack still in use. So what happens to it (back to the pool, parked, ended) is
/// recorded in `left_…`, and the context that is switched to carries it out first: arrived().
///
/// Everything between a public leave_…() of dispatcher and the switch is inlined, and everything
/// after it too: the processor's return stack mispredicts each return that follows a switch. So
/// jump() is called in dispatcher.cpp and switcher.cpp only, which CMakeLists.txt has flags for.
///
/// Owns:    the loop's saved context, and the record of the ULT that was left.
/// Threads: the stream's, but for leaving_seen() and ending_seen(), which any may call.
class switcher {
public:
    /// A ULT or tasklet of this stream has ended. True: it was detached, and the caller frees it. A
    /// joiner on another thread waits while it is `ending_seen`: see join_state.
    bool end(join_state& what) noexcept;
    const join_state* ending_seen() const noexcept {
        return ending_.load(std::memory_order_acquire);
    }
    /// Null: the loop.
    ult_core* running() const noexcept { return running_.load(std::memory_order_relaxed); }
    /// For other threads: see ult_registry.
    const ult_core* running_seen() const noexcept {
        return running_.load(std::memory_order_acquire);
    }
    /// The ULT whose context may not be saved yet.
    const ult_core* leaving_seen() const noexcept { return left_.load(std::memory_order_acquire); }
    /// In a fork() child, for a stream of the parent: nobody is in the middle of these any more.
    void forget_in_child() noexcept {
        note_left(nullptr, fate::resumed);
        ending_.store(nullptr, std::memory_order_relaxed);
    }
    ready_work& work() noexcept { return work_; }
    const thread_caches& caches() const noexcept { return caches_; }

protected:
    enum class fate : unsigned char { resumed, yielded, placed, parked, finished };
    /// What continues after a switch, and the stream that runs it now, possibly another one.
    struct resumed {
        ult_core* who;  ///< Null: the loop.
        switcher* here;
    };

    explicit switcher(bool own_pool_first) noexcept : work_(own_pool_first) {}

    /// Before jump(). release: who waited for the ULT left before sees here, too, that it is saved.
    void note_left(ult_core* who, fate what) noexcept {
        left_.store(who, std::memory_order_release);
        left_for_ = what;
    }
    resumed jump(call_stack& from, call_stack& to) noexcept;
    /// The same where no exception is being handled, nor switches told of.
    resumed jump_plain(call_stack& from, call_stack& to) noexcept;
    /// To its new home, where its callback runs first, if it has one.
    static void push_moved(ult_core& who) noexcept;
    /// From now on, while there are hooks, jump() tells them. What it looks at anyway says so, so
    /// that without hooks there is nothing to look at.
    void tell_of_switches() noexcept { caches_.exceptions = &told_switches; }
    /// First on a stack that was switched to.
    static resumed arrived(arrival at) noexcept;

private:
    resumed jump_from_catch(call_stack& from, call_stack& to) noexcept;
    void tell_switch(const call_stack& from, const call_stack& to) noexcept;
    void settle() noexcept;
    void settle_parked(ult_core& who) noexcept;

    // In place of the thread's, for switches that are told.
    [[gnu::visibility("hidden")]] static inline constinit exception_state told_switches{nullptr, 1};

    // What each switch uses comes first: this is a cache line, and the next one is the start of
    // work_.
protected:
    std::atomic<ult_core*> running_{nullptr};
    thread_caches caches_;
    waiter* left_until_ = nullptr;  // with fate::parked

private:
    // The ULT switched away from, and what to do with it; null: done.
    std::atomic<ult_core*> left_{nullptr};
    fate left_for_ = fate::resumed;
    std::atomic<const join_state*> ending_{nullptr};

protected:
    ready_work work_;
    call_stack loop_;

    // With fate::placed, which is one so that the others are told apart as fast as without: the ULT
    // is in its pool already, and this kept it there. Null: it has another home, and goes there.
    std::atomic<bool>* left_holding_ = nullptr;

private:
    call_stack* from_ = nullptr;  // for sanitizers
};

inline bool switcher::end(join_state& what) noexcept {
    if (what.made_at_home) {
        // release: who waited for the unit before sees here, too, that it has ended.
        ending_.store(&what, std::memory_order_release);
        std::atomic_signal_fence(std::memory_order_seq_cst);
        const bool unseen = what.joiner.load(std::memory_order_relaxed) == join_state::nobody;
        if (unseen) what.joiner.store(join_state::finished_alone_mark, std::memory_order_release);
        ending_.store(nullptr, std::memory_order_release);
        if (unseen) return false;
    }
    return what.finish();
}

[[gnu::always_inline]] inline void switcher::settle() noexcept {
    ult_core* const who = left_.load(std::memory_order_relaxed);
    if (left_for_ == fate::resumed) [[likely]]
        return left_.store(nullptr, std::memory_order_release);
    switch (left_for_) {
        case fate::resumed:
            break;
        case fate::yielded:
            work_.requeue(*who);
            break;
        case fate::placed:
            if (left_holding_ == nullptr) {
                push_moved(*who);
            } else {
                std::exchange(left_holding_, nullptr)->store(false, std::memory_order_release);
            }
            break;
        case fate::parked:
            if (who->requests.load(std::memory_order_relaxed) != 0) {
                settle_parked(*who);
            } else if (!left_until_->commit()) {
                work_.requeue(*who);  // the permit came before the park: back to the pool at once
            }
            break;
        case fate::finished:
            // First: give_back() may take a lock whose holder, ult_registry::hold, waits for this.
            left_.store(nullptr, std::memory_order_release);
            if (end(*who)) ult_core::give_back(*who, caches_.stock);
            return;
    }
    left_.store(nullptr, std::memory_order_release);
}

[[gnu::always_inline]] inline switcher::resumed switcher::arrived(arrival at) noexcept {
    call_stack& now = call_stack::of(at);
    auto* const here = static_cast<switcher*>(at.data);
    if constexpr (sanitized) now.sanitizer.after_switch_from(here->from_->sanitizer);
    here->settle();
    return {now.owner, here};
}

[[gnu::always_inline]] inline switcher::resumed switcher::jump_plain(call_stack& from,
                                                                     call_stack& to) noexcept {
    if constexpr (sanitized) from_ = &from;
    from.sanitizer.before_switch_to(to.sanitizer);
    return arrived(switch_stack(from.stack, to.stack, this));
}

[[gnu::always_inline]] inline switcher::resumed switcher::jump(call_stack& from,
                                                               call_stack& to) noexcept {
    // The ULT that left has taken its caught exceptions along.
    if (caches_.exceptions->any()) [[unlikely]]
        return jump_from_catch(from, to);
    return jump_plain(from, to);
}

}  // namespace amalgam::detail
