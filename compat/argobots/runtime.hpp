#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/tasks/shared_pools.hpp>

#include "scheduling/xstream.hpp"

namespace amalgam::argobots {

/// Where all ULTs are created, since Amalgam refuses to create one in a pool that nobody serves
/// yet: it passes each on to its own pool. The primary stream serves it.
class nursery final : public pool {
public:
    nursery() noexcept : pool(pool_access::any_stream) {}
    ~nursery() override { drop_left(); }
    void push(work_unit& unit) noexcept override;
    work_unit* pop() noexcept override { return strays_.pop(); }
    bool empty() const noexcept override { return strays_.empty(); }
    std::size_t size() const noexcept override { return strays_.size(); }

private:
    shared_fifo_pool strays_;  // ULTs at their very end, which no longer lead to a thread
};

struct let_go {
    template <typename T>
    void operator()(T* which) const noexcept {
        which->holders.fetch_sub(1, std::memory_order_release);
    }
};
template <typename T>
using held = std::unique_ptr<T, let_go>;

/// A stream and its main scheduler. While it exists, who frees one of them, or replaces the
/// scheduler, waits. Not to be kept over a wait for another's work.
struct held_stream {
    held<ABT_xstream_opaque> stream;
    held<ABT_sched_opaque> sched;
};

/// What ABT_init() makes and the last ABT_finalize() ends.
class runtime {
public:
    runtime();
    ~runtime();
    /// Null: not initialized.
    static runtime* get() noexcept { return current.load(std::memory_order_acquire); }
    static std::atomic<runtime*> current;
    /// One of these, which creating a unit looks at, is false if there are none, and in a child of
    /// fork(), where pools may have no stream any more: then, may_add() tells more.
    static bool has_streams() noexcept { return has_streams_.load(std::memory_order_acquire); }
    static bool has_usual_stacks() noexcept {
        return has_usual_stacks_.load(std::memory_order_acquire);
    }
    /// An error number: whether `pool` may have a new unit. It may be null.
    static int may_add(const ABT_pool_opaque* pool) noexcept;

    nursery& newborn() noexcept { return newborn_; }
    ABT_xstream_opaque& primary() noexcept { return primary_; }
    std::size_t default_stack_bytes() const noexcept { return stack_bytes_; }

    /// Gives it the rank, or with -1 the lowest free one. False: taken.
    bool add(ABT_xstream_opaque& which, int rank);
    bool change_rank(ABT_xstream_opaque& which, int rank);
    void remove(ABT_xstream_opaque& which) noexcept;  ///< Waits until nobody holds it.
    /// Returns the one before, which others may hold still.
    ABT_sched_opaque& replace_main_sched(ABT_xstream_opaque& of, ABT_sched_opaque& by) noexcept;
    held_stream hold(ABT_xstream_opaque& which) noexcept;
    std::vector<held_stream> hold_all();
    std::size_t number_of_streams() noexcept;
    /// A ULT wishes to move to it by its number. Throws std::bad_alloc.
    void note_goal(ABT_pool_opaque& pool);
    /// That pool, if it is there and not done, neither of which changes meanwhile; else null.
    held<ABT_pool_opaque> hold_goal(int id) noexcept;
    void forget_goal(const ABT_pool_opaque& pool) noexcept;  ///< Waits until nobody holds it.
    static void wait_until_let_go(const std::atomic<int>& holders) noexcept;
    /// For a short wait, again and again: those of the caller's stream, too, if it may yield.
    static void let_others_run() noexcept;
    /// Throws error{closed} in a child of fork(), which has none of its parent's streams.
    static void refuse_in_child() {
        if (in_child_.load(std::memory_order_relaxed)) [[unlikely]]
            throw_in_child();
    }
    /// Returns once no stream is telling the end of `who`.
    void let_end(const ABT_thread_opaque& who) noexcept;

private:
    bool is_taken(int rank) const noexcept;
    held_stream hold_locked(ABT_xstream_opaque& which) noexcept;
    [[noreturn]] static void throw_in_child();
    /// False: there is no memory for it.
    static bool tell_children() noexcept;

    static const bool tells_children_from_load_on_;
    static std::atomic<bool> in_child_;
    static std::atomic<bool> has_streams_;
    static std::atomic<bool> has_usual_stacks_;  // and ABT_THREAD_STACKSIZE is not set
    nursery newborn_;
    ABT_xstream_opaque primary_{true};
    ABT_thread_opaque main_;
    std::size_t stack_bytes_ = 0;
    std::mutex busy_;
    std::vector<ABT_xstream_opaque*> streams_;
    std::unordered_map<int, ABT_pool_opaque*> goals_;  // by number
};

/// What ABT_info_print_thread() says of a unit, which may end meanwhile.
struct unit_words {
    explicit unit_words(ABT_thread_opaque& who) noexcept;
    void print(FILE* to) const noexcept;

    thread_kind kind;
    int state;
    int pool = -1;  ///< Its number; -1: none.
    std::uint64_t id;
};

/// Prints the call stack of one ULT.
int print_stack(FILE* to, ABT_thread who) noexcept;
/// Those of all that are in `pool`. One that comes while it looks is printed without a stack.
int print_stacks_in(FILE* to, ABT_pool_opaque& pool) noexcept;
/// Has a stream print all call stacks once all streams have noticed or, unless negative, `seconds`
/// have passed; then calls `told`. Does nothing while an earlier call is not answered. Safe in
/// signal handlers.
int trigger_print(FILE* to, double seconds, void (*told)(ABT_bool, void*), void* with) noexcept;
extern std::atomic<unsigned> stacks_wanted;  ///< Counts what trigger_print() asked for.
void print_wanted_stacks() noexcept;
void answer_wanted_stacks() noexcept;  ///< At the end: until all calls so far are answered.
void forget_wanted_stacks() noexcept;  ///< No stream is left.

void free_xstream(ABT_xstream_opaque& which) noexcept;  ///< It has ended.

inline bool initialized() noexcept {
    return runtime::get() != nullptr;
}

/// Runs `body`, which returns an error number, and turns what it throws into one. Exit of a ULT,
/// which is no std::exception, passes.
template <typename Body>
int guarded(Body&& body) {
    try {
        return body();
    } catch (const std::bad_alloc&) {
        return ABT_ERR_MEM;
    } catch (const failure& why) {
        return why.number;
    } catch (const error& why) {
        return why.code() == errc::no_memory ? ABT_ERR_MEM : ABT_ERR_OTHER;
    } catch (const std::exception&) {
        return ABT_ERR_OTHER;
    }
}

}  // namespace amalgam::argobots
