#include <algorithm>
#include <cstdlib>

#include <pthread.h>

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
    if (const char* const bytes = std::getenv("ABT_THREAD_STACKSIZE"))
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
    primary_.join();
    for (ABT_xstream_opaque* each : streams()) {
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
    current = nullptr;
}

void runtime::tell_children() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        ::pthread_atfork(nullptr, nullptr, [] {
            if (!initialized()) return;
            in_child_.store(true, std::memory_order_relaxed);
            has_streams_ = has_usual_stacks_ = false;
        });
    });
    in_child_.store(false, std::memory_order_relaxed);
}

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
    const std::lock_guard hold(busy_);
    std::erase(streams_, &which);
}

void runtime::let_end(const ABT_thread_opaque& who) noexcept {
    const std::lock_guard hold(busy_);
    for (const ABT_xstream_opaque* each : streams_) {
        while (each->ending.load(std::memory_order_acquire) == &who)
            ::sched_yield();
    }
}

std::vector<ABT_xstream_opaque*> runtime::streams() {
    const std::lock_guard hold(busy_);
    return streams_;
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
