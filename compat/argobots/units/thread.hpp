#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <amalgam/tasks/extension/guest.hpp>
#include <amalgam/tasks/extension/local.hpp>
#include <amalgam/tasks/parking.hpp>
#include <amalgam/tasks/ult.hpp>

#include "abt.h"

namespace amalgam::argobots {

enum class thread_kind : std::uint8_t { primary, scheduler, ult, tasklet };

/// How far the joining of a ULT on a given stack is: see thread_join.cpp.
enum class join_stage : std::uint8_t {
    open,     ///< Nobody joins it yet.
    joining,  ///< One caller joins it.
    awaited,  ///< And others wait for that caller.
    joined
};

/// Of one that was resumed and is in no pool yet. Told as ready, but nobody may hand over to it.
inline constexpr std::uint8_t resumed_state = ABT_THREAD_STATE_TERMINATED + 1;
/// Of one that the program has taken out of a pool. Told as ready, too, and the only state in which
/// the caller may hand over to it: what a stream takes out for itself stays ready.
inline constexpr std::uint8_t popped_state = resumed_state + 1;
constexpr ABT_thread_state told_state(std::uint8_t state) noexcept {
    return state > ABT_THREAD_STATE_TERMINATED ? ABT_THREAD_STATE_READY
                                               : static_cast<ABT_thread_state>(state);
}

/// Thrown to end a function of the interface with that error number; see guarded().
struct failure {
    int number;
};

/// What a tool was told of a unit last. Kept while there is a tool.
enum class told_stage : std::uint8_t {
    unknown,  ///< Nothing yet.
    ready,
    runs,
    suspended,         ///< By ABT_self_suspend() and the like, after which it ends if canceled.
    waits,             ///< For anything else.
    ready_after_wait,  ///< That of `waits`.
    ended              ///< Or canceled: nothing follows but its joins and its end.
};

class own_pool;

/// Who waits for the end of a ULT, on its own stack.
struct joiner {
    waiter who;
    std::uintptr_t before = 0;  ///< The one that came before it, or 0.
};

struct key_value {
    std::uint64_t key;
    void (*destroy)(void*);
    void* value;
};

}  // namespace amalgam::argobots

struct ABT_thread_attr_opaque {
    void* stack = nullptr;
    std::size_t stack_bytes = 0;  ///< 0: the default.
    // Of ABT_thread_get_attr(): told, not used.
    void* told_stack = nullptr;
    bool has_no_stack = false;
    bool migratable = true;
    void (*on_migration)(ABT_thread, void*) = nullptr;
    void* on_migration_arg = nullptr;
};

namespace amalgam::argobots {

/// What few units need of a descriptor.
struct rare_part {
    ABT_thread_attr_opaque attr;
    std::vector<key_value> values;  ///< With values_busy, while its ULT may run.
    std::atomic_flag values_busy;
    ABT_unit unit = nullptr;  ///< Of a pool of the program's functions.
    amalgam::ult handle;      ///< Not empty: on_given_stack.
};

}  // namespace amalgam::argobots

/// A ULT, tasklet, scheduler's ULT or the primary thread: its guest() pointer leads here.
///
/// Owner:   named ones, the user until ABT_thread_free(); others end with their function.
/// Threads: what is atomic, any. The rest belongs to whoever creates, runs, revives or frees it.
struct ABT_thread_opaque {
    void (*function)(void*) = nullptr;
    void* arg = nullptr;
    std::atomic<ABT_pool> pool{nullptr};       ///< The one it is associated with.
    std::atomic<ABT_xstream> stream{nullptr};  ///< Runs it, or did last.
    amalgam::work_unit* work = nullptr;        ///< Null: it has no stack, not yet or no more.
    /// 0, then the last `joiner` to wait for it, or a mark: it has ended. Not on_given_stack.
    std::atomic<std::uintptr_t> end{0};
    static constexpr std::uintptr_t ended_mark = 1;
    static constexpr std::uintptr_t ended_alone_mark = 2;  ///< And told no waiter.
    // A pool of ours that holds it; with the pool's lock.
    ABT_thread_opaque* next = nullptr;
    std::atomic<std::uint8_t> state{ABT_THREAD_STATE_READY};
    amalgam::argobots::thread_kind kind : 4 = amalgam::argobots::thread_kind::ult;
    bool named : 1 = true;
    std::uint8_t unused_bits : 3 = 0;  // so that the byte is written without being read
    bool calling = false;  ///< In ABT_self_schedule(): goes on when what it runs leaves.
    bool on_given_stack = false;
    std::atomic<bool> canceled{false};
    /// No exchange at its end: see tell_end(). Set before it is ready, and never again.
    std::atomic<bool> ends_quickly{false};
    std::atomic<amalgam::argobots::join_stage> joins{amalgam::argobots::join_stage::joined};
    std::atomic<amalgam::argobots::told_stage> told{amalgam::argobots::told_stage::unknown};

    ABT_thread_opaque* prev = nullptr;  // as next
    std::atomic<ABT_pool> listed_in{nullptr};
    std::uint32_t leaves_as = 0;  ///< ABT_pool_context told to the pool when it next yields.
    std::atomic<std::uint32_t> others_joining{0};    ///< Who still looks at it.
    std::atomic<ABT_xstream> runs_next_on{nullptr};  ///< When ready, by-passing its pool.
    /// The number of the pool that it wishes to move to when ready, which may have ended by then.
    std::atomic<int> migrates_to{no_pool};
    static constexpr int no_pool = -1;
    std::atomic<amalgam::waiter*> suspended{nullptr};
    std::atomic<std::uint64_t> id{0};  ///< Given when first asked for: see id_of().
    std::atomic<amalgam::argobots::rare_part*> rare{nullptr};  ///< Made on demand.

    ABT_thread_opaque() = default;  ///< Of the primary thread.
    ABT_thread_opaque(amalgam::argobots::thread_kind which, void (*what)(void*), void* with,
                      ABT_pool in, bool has_name) noexcept
        : function(what),
          arg(with),
          pool(in),
          kind(which),
          named(has_name),
          joins(has_name && which != amalgam::argobots::thread_kind::scheduler
                    ? amalgam::argobots::join_stage::open
                    : amalgam::argobots::join_stage::joined),
          leaves_as(ABT_POOL_CONTEXT_OP_THREAD_CREATE) {}
    ABT_thread_opaque(const ABT_thread_opaque&) = delete;
    ABT_thread_opaque& operator=(const ABT_thread_opaque&) = delete;
    ~ABT_thread_opaque() { delete rare.load(std::memory_order_acquire); }

    bool wants_to_move() const noexcept {
        return migrates_to.load(std::memory_order_relaxed) != no_pool;
    }
    bool is_tasklet() const noexcept { return kind == amalgam::argobots::thread_kind::tasklet; }
    bool is_primary() const noexcept { return kind == amalgam::argobots::thread_kind::primary; }
    /// Whether ults() of its pool counts it.
    bool is_counted() const noexcept { return work != nullptr; }
    static bool is_mark(std::uintptr_t end) noexcept {
        return end - ended_mark <= ended_alone_mark - ended_mark;
    }
    bool end_is_told() const noexcept { return is_mark(end.load(std::memory_order_acquire)); }
    /// `only_one`: nobody else begins to.
    void wait_for_end(bool only_one);
    /// False: it has ended.
    bool add_joiner(amalgam::argobots::joiner& one) noexcept;
    bool is_over_after_all() noexcept;
    /// Its pool, if the calling stream has that for itself. Null: not, or not known.
    amalgam::argobots::own_pool* own_pool_here() const noexcept;
    /// Its owner may free it at once.
    void tell_end() noexcept;

    amalgam::argobots::rare_part& rare_part();  ///< Throws std::bad_alloc.
    const ABT_thread_attr_opaque& attr() const noexcept;
    /// What pools of ours know it by.
    ABT_unit own_unit() const noexcept {
        return reinterpret_cast<ABT_unit>(reinterpret_cast<std::uintptr_t>(this) | 1);
    }
    /// What its pool knows it by.
    ABT_unit unit() const noexcept {
        const amalgam::argobots::rare_part* const more = rare.load(std::memory_order_acquire);
        return more == nullptr || more->unit == nullptr ? own_unit() : more->unit;
    }
    void set_unit(ABT_unit to);  ///< Throws std::bad_alloc.
};
static_assert(sizeof(ABT_thread_opaque) <= 128, "two cache lines for each unit");

namespace amalgam::argobots {

/// The caller's; null on a plain thread or another ULT of Amalgam.
inline ABT_thread_opaque* self() noexcept {
    return static_cast<ABT_thread_opaque*>(detail::guest());
}
/// Null: not one of ours, or at its very end.
ABT_thread_opaque* thread_of(work_unit& unit) noexcept;
std::uint64_t id_of(ABT_thread_opaque& who) noexcept;

inline bool is_tasklet(const ABT_thread_opaque* who) noexcept {
    return who != nullptr && who->is_tasklet();
}

/// Whether the caller is a tasklet, which may wait for a mutex and a stream only.
inline bool caller_is_tasklet() noexcept {
    return is_tasklet(self());
}

/// While it exists, the caller is in a function of the program that was called between two ULTs: a
/// wait would be one of either, and the other would be lost.
class between_ults {
public:
    between_ults() noexcept;
    ~between_ults();
    between_ults(const between_ults&) = delete;
    between_ults& operator=(const between_ults&) = delete;

    static bool here() noexcept;

private:
    const bool before_;
};

/// Whether the caller is on a stream's own stack, but no tasklet of ours: a timer, for example.
inline bool is_on_streams_stack(const ABT_thread_opaque* caller) noexcept {
    if (caller != nullptr) return false;
    const detail::task_place here = detail::task_here();
    return here.stream != nullptr && here.ult == nullptr;
}

inline bool may_not_wait(const ABT_thread_opaque* caller) noexcept {
    return is_tasklet(caller) || between_ults::here() || is_on_streams_stack(caller);
}

/// Whether it is an error if the caller waits for anything but a mutex and a stream.
inline bool caller_may_not_wait() noexcept {
    return may_not_wait(self());
}

/// Runs a tasklet, and others that follow it, on the stream's own stack.
void run_tasklets(ABT_thread_opaque& first) noexcept;

struct new_thread {
    ABT_pool pool;
    void (*function)(void*);
    void* arg;
    ABT_thread_attr attr = nullptr;
    thread_kind kind = thread_kind::ult;
    bool named = true;
    ABT_xstream runs_next_on = nullptr;
    ABT_thread* made = nullptr;  ///< Set before it can run.
};
/// Throws std::bad_alloc, amalgam::error, or the failure of the pool.
ABT_thread_opaque& create_thread(const new_thread& what);
/// One with the usual stack and no attributes, or a tasklet. Returns an error number.
int create_named(own_pool& where, void (*function)(void*), void* arg, ABT_thread& made,
                 thread_kind kind) noexcept;
int create_unnamed(own_pool& where, void (*function)(void*), void* arg, thread_kind kind) noexcept;
/// One of both: `made` may be null.
inline int create_usual(own_pool& where, void (*function)(void*), void* arg, ABT_thread* made,
                        thread_kind kind) noexcept {
    return made == nullptr ? create_unnamed(where, function, arg, kind)
                           : create_named(where, function, arg, *made, kind);
}
/// Runs its function again. It has ended, and join_last() has returned. Throws amalgam::error.
void relaunch(ABT_thread_opaque& who);
/// Gives one that is about to run for the first time a stack. The calling stream runs it. False:
/// only by give_stack() on the stream's own stack.
bool give_stack_quickly(ABT_thread_opaque& who) noexcept;
/// False: no memory, which is logged if `tell`.
bool give_stack(ABT_thread_opaque& who, bool tell) noexcept;
/// Its pool ends before it has.
void end_left(ABT_thread_opaque& who) noexcept;
/// Memory of descriptors that ended one after the other, of which a pool may take each.
class spare_descriptor {
public:
    spare_descriptor() = default;
    ~spare_descriptor() { free(); }
    spare_descriptor(const spare_descriptor&) = delete;
    spare_descriptor& operator=(const spare_descriptor&) = delete;

    /// `who` has ended, and has no name: nothing refers to it any more.
    void take(ABT_thread_opaque& who) noexcept;
    void*& memory() noexcept { return memory_; }

private:
    void free() noexcept;
    void* memory_ = nullptr;
};
/// Its function has ended.
void end_thread(ABT_thread_opaque& who) noexcept;
/// Calls its function.
void call_function(ABT_thread_opaque& who) noexcept;
bool has_ended(ABT_thread_opaque& who) noexcept;
/// Waits for its end. Any number may call it at once. Again: nothing.
void join_thread(ABT_thread_opaque& who);
/// The same, and tells the tool, before anybody frees it.
void join_and_tell(ABT_thread_opaque& who);
/// The same before it is freed or revived, when nobody else begins to join it; waits until those
/// who did have left, too.
void join_last(ABT_thread_opaque& who);
void free_thread(ABT_thread_opaque& who) noexcept;  ///< It has ended.
/// Makes `pool` its pool. It must be in none.
void associate(ABT_thread_opaque& who, ABT_pool pool);
bool migrate_asked(ABT_thread_opaque& who);
/// Carries out a migration that was asked for. False: none was, or its pool is done or has ended.
inline bool migrate_if_asked(ABT_thread_opaque& who) {
    return who.wants_to_move() && migrate_asked(who);
}
int set_value(ABT_thread_opaque& who, ABT_key key, void* value);
int get_value(ABT_thread_opaque& who, ABT_key key, void** value);
std::size_t stack_bytes_of(const ABT_thread_attr_opaque& attr) noexcept;
void destroy_values(ABT_thread_opaque& who) noexcept;
/// After each wait of the caller. May not return.
void end_if_canceled(ABT_thread_opaque& who);
/// Leaves the caller's stream to others for once; first of all to whom it was handed over.
void leave_stream(ABT_thread_opaque& who);
/// The same, and tells the caller's pool why.
void yield_as(ABT_thread_opaque& who, std::uint32_t why);
/// As the yield of the primary ULT does, if `joined`, which it will wait for, is queued where it
/// would stand itself in Argobots.
void let_queued_run(ABT_thread_opaque& primary, const ABT_thread_opaque& joined);

}  // namespace amalgam::argobots
