#include <algorithm>
#include <cstdlib>
#include <utility>

#include <pthread.h>
#include <sched.h>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/small_block.hpp>
#include <amalgam/tasks/extension/stacks_ahead.hpp>

#include "runtime.hpp"

namespace amalgam::argobots {

std::atomic<runtime*> runtime::current{nullptr};
std::atomic<bool> runtime::in_child_{false};
std::atomic<bool> runtime::has_streams_{false};
std::atomic<bool> runtime::has_usual_stacks_{false};

namespace {

std::mutex& init_lock() {
    static std::mutex one;
    return one;
}
int times_initialized = 0;

constexpr std::size_t first_units = 128;  // as the original, which does this each time

/// In the calling thread's cache.
void touch_descriptors() noexcept {
    void* all[first_units];
    std::size_t number = 0;
    try {
        for (; number < first_units; ++number)
            all[number] = detail::allocate_block(sizeof(ABT_thread_opaque));
    } catch (const std::bad_alloc&) {
        // Who needs one will ask, too.
    }
    while (number > 0)
        detail::free_block(all[--number], sizeof(ABT_thread_opaque));
}

void provide_for_first_units(bool with_stacks) noexcept {
    static std::once_flag once;
    std::call_once(once, [with_stacks] {
        touch_descriptors();
        if (with_stacks) detail::map_stacks_ahead(first_units);
    });
}

}  // namespace

runtime::runtime() {
    tell_children();
    for (const char* const name : {"ABT_ENV_THREAD_STACKSIZE", "ABT_THREAD_STACKSIZE"})
        if (const char* const bytes = std::getenv(name))
            stack_bytes_ = std::strtoull(bytes, nullptr, 0);
    ABT_sched_opaque& sched = create_sched(ABT_SCHED_DEFAULT, 0, nullptr, nullptr);
    sched.automatic = true;
    sched.main_of = &primary_;
    primary_.main_sched = &sched;
    main_.kind = thread_kind::primary;
    main_.state = ABT_THREAD_STATE_RUNNING;
    detail::name_stack_option("ABT_THREAD_STACKSIZE, or the stack size of its ABT_thread_attr");
    main_.stream = &primary_;
    main_.pool = sched.pools.front();
    main_.set_unit(sched.pools.front()->create_unit(main_));
    add(primary_, -1);
    current = this;  // the stream asks for it
    try {
        primary_.start();
    } catch (...) {
        current = nullptr;
        free_sched(sched);
        throw;
    }
    detail::guest() = &main_;
    detail::tell_guests_left(
        [](void* left) noexcept { end_left(*static_cast<ABT_thread_opaque*>(left)); });
    provide_for_first_units(stack_bytes_ == 0);
    has_streams_.store(true, std::memory_order_release);
    has_usual_stacks_.store(stack_bytes_ == 0, std::memory_order_release);
}

runtime::~runtime() {
    answer_wanted_stacks();
    primary_.join();
    for (ABT_xstream_opaque* each : std::vector(streams_)) {
        if (each == &primary_) continue;
        each->exit_asked = true;  // never joined by its owner
        each->join();
        free_xstream(*each);
    }
    destroy_values(main_);
    detail::guest() = nullptr;
    primary_.stream.reset();
    if (main_.unit() != main_.own_unit()) main_.pool.load()->free_unit(main_.unit());
    primary_.main_sched->main_of = nullptr;
    if (primary_.main_sched->automatic || !primary_.main_sched->predefined())
        free_sched(*primary_.main_sched);
    has_streams_ = has_usual_stacks_ = false;
    forget_wanted_stacks();
    current = nullptr;
}

bool runtime::tell_children() noexcept {
    // No local static: a child of fork() would wait for ever for a thread of its parent that had
    // begun it. To do it twice harms nobody.
    static constinit std::atomic<bool> done{false};
    if (!done.load(std::memory_order_relaxed)) {
        const int why = ::pthread_atfork(nullptr, nullptr, [] {
            ::new (&init_lock()) std::mutex;  // Another thread may have had it.
            if (!initialized()) return;
            in_child_.store(true, std::memory_order_relaxed);
            has_streams_ = has_usual_stacks_ = false;
        });
        done.store(why == 0, std::memory_order_relaxed);
    }
    in_child_.store(false, std::memory_order_relaxed);
    return done.load(std::memory_order_relaxed);
}

// When the library is loaded: the first ABT_init() may come while another thread forks, and that
// child would not be told.
const bool runtime::tells_children_from_load_on_ = tell_children();

void runtime::throw_in_child() {
    throw error(errc::closed,
                "this waits for a stream of the parent process, which a child of fork() has not; "
                "call exec() in the child, or use Argobots in one of the two only");
}

int runtime::may_add(const ABT_pool_opaque* pool) noexcept {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    if (pool == nullptr) return ABT_ERR_INV_POOL;
    return pool->is_left_to_parent() ? ABT_ERR_OTHER : ABT_SUCCESS;
}

bool runtime::is_taken(int rank) const noexcept {
    return std::any_of(streams_.begin(), streams_.end(),
                       [rank](const auto* each) { return each->rank.load() == rank; });
}

bool runtime::add(ABT_xstream_opaque& which, int rank) {
    const std::lock_guard hold(busy_);
    if (rank < 0) {
        for (rank = 0; is_taken(rank);)
            ++rank;
    } else if (is_taken(rank)) {
        return false;
    }
    which.rank = rank;
    streams_.push_back(&which);
    return true;
}

bool runtime::change_rank(ABT_xstream_opaque& which, int rank) {
    const std::lock_guard hold(busy_);
    if (which.rank.load() != rank && is_taken(rank)) return false;
    which.rank = rank;
    return true;
}

void runtime::remove(ABT_xstream_opaque& which) noexcept {
    {
        const std::lock_guard lock(busy_);
        std::erase(streams_, &which);
    }
    wait_until_let_go(which.holders);
}

ABT_sched_opaque& runtime::replace_main_sched(ABT_xstream_opaque& of,
                                              ABT_sched_opaque& by) noexcept {
    const std::lock_guard lock(busy_);
    return *std::exchange(of.main_sched, &by);
}

void runtime::let_others_run() noexcept {
    const ABT_thread_opaque* const who = self();
    who != nullptr && !may_not_wait(who) ? this_task::yield() : static_cast<void>(::sched_yield());
}

void runtime::wait_until_let_go(const std::atomic<int>& holders) noexcept {
    while (holders.load(std::memory_order_acquire) > 0 && !in_child_.load())
        let_others_run();
}

void runtime::let_end(const ABT_thread_opaque& who) noexcept {
    const std::lock_guard hold(busy_);
    for (const ABT_xstream_opaque* each : streams_) {
        while (each->ending.load(std::memory_order_acquire) == &who)
            ::sched_yield();
    }
}

held_stream runtime::hold_locked(ABT_xstream_opaque& which) noexcept {
    which.holders.fetch_add(1, std::memory_order_relaxed);
    which.main_sched->holders.fetch_add(1, std::memory_order_relaxed);
    return {held<ABT_xstream_opaque>(&which), held<ABT_sched_opaque>(which.main_sched)};
}

held_stream runtime::hold(ABT_xstream_opaque& which) noexcept {
    const std::lock_guard lock(busy_);
    return hold_locked(which);
}

std::vector<held_stream> runtime::hold_all() {
    std::vector<held_stream> all;
    const std::lock_guard lock(busy_);
    all.reserve(streams_.size());
    for (ABT_xstream_opaque* each : streams_)
        all.push_back(hold_locked(*each));
    return all;
}

std::size_t runtime::number_of_streams() noexcept {
    const std::lock_guard lock(busy_);
    return streams_.size();
}

void runtime::note_goal(ABT_pool_opaque& pool) {
    const std::lock_guard lock(busy_);
    goals_[pool.id] = &pool;
    pool.is_goal = true;
}

held<ABT_pool_opaque> runtime::hold_goal(int id) noexcept {
    const std::lock_guard lock(busy_);
    const auto at = goals_.find(id);
    const bool there = at != goals_.end() && at->second->let_one_come();
    return held<ABT_pool_opaque>(there ? at->second : nullptr);
}

void runtime::forget_goal(const ABT_pool_opaque& pool) noexcept {
    {
        const std::lock_guard lock(busy_);
        goals_.erase(pool.id);
    }
    wait_until_let_go(pool.holders);
}

}  // namespace amalgam::argobots

using namespace amalgam::argobots;

int ABT_init(int, char**) {
    return guarded([] {
        const std::lock_guard hold(init_lock());
        if (times_initialized == 0) new runtime;
        ++times_initialized;
        return ABT_SUCCESS;
    });
}

int ABT_finalize(void) {
    if (!initialized()) return ABT_ERR_UNINITIALIZED;
    {
        const std::lock_guard hold(init_lock());
        if (times_initialized > 1) {
            --times_initialized;
            return ABT_SUCCESS;
        }
        const ABT_thread_opaque* const who = self();
        if (who == nullptr) return ABT_ERR_INV_XSTREAM;
        if (!who->is_primary()) return ABT_ERR_INV_THREAD;
        times_initialized = 0;
    }
    delete runtime::get();
    return ABT_SUCCESS;
}

int ABT_initialized(void) {
    return initialized() ? ABT_SUCCESS : ABT_ERR_UNINITIALIZED;
}
