#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <amalgam/tasks/extension/thread_barrier.hpp>
#include <amalgam/tasks/pool.hpp>

#include "units/thread.hpp"

namespace amalgam::argobots {
class own_pool;
}

/// A pool: ours or a user's, which the two classes below differ in. Any number of streams serve it.
///
/// Owner:   the user, or if automatic, the last scheduler that has it.
/// Threads: any.
struct ABT_pool_opaque : public amalgam::pool {
    using thread = ABT_thread_opaque;

    void push(amalgam::work_unit& unit) noexcept final;
    void requeue(amalgam::work_unit& unit) noexcept final;
    /// For the end of the pool: streams choose by take().
    amalgam::work_unit* pop() noexcept final;

    /// Where a new one, or one that waited, goes first: to the stream that it was handed to, to the
    /// pool that it moves to, or in here.
    void make_ready(thread& who) noexcept;
    /// The same for one that has just been created or revived.
    void make_new_ready(thread& who) noexcept;
    void make_ready_in_line(thread& who) noexcept;
    /// Adds a ready one.
    void add(thread& who, ABT_pool_context why) noexcept;
    /// Null: there is none.
    virtual thread* take(ABT_pool_context why) = 0;
    virtual thread* take_wait(double seconds, ABT_pool_context why);
    virtual std::size_t take_many(thread** to, std::size_t most, ABT_pool_context why);
    virtual void add_many(thread* const* which, std::size_t number, ABT_pool_context why);
    /// False: it is not in here, or the pool cannot do this.
    virtual bool remove_thread(thread& who) = 0;
    virtual void for_each(void (*visit)(void* arg, thread& who), void* arg) = 0;
    /// Calls the user's own function for it, if there is one.
    virtual void print_threads(void* arg, void (*print)(void* arg, ABT_thread));
    virtual void print_units(void* arg, void (*print)(void* arg, ABT_unit));
    /// Throws failure.
    virtual ABT_unit create_unit(thread& who) = 0;
    virtual void free_unit(ABT_unit unit) noexcept = 0;
    /// Whether nothing is in it and, if only one scheduler has it, no ULT will come back to it.
    /// Then that scheduler may end, so none moves into it any more until open().
    bool is_done() noexcept;
    void open() noexcept;
    /// For runtime::hold_goal(). False: it is done.
    bool let_one_come() noexcept;

    /// What is in it, and ULTs that will come back to it.
    std::size_t total() const noexcept { return std::max(size(), ults() + uncounted()); }
    bool is_left_to_parent() const noexcept { return left_to_parent(); }
    /// One that sleeps looks at it.
    void wake_server() noexcept { notify(); }
    /// How many units are in it that ults() does not count; 0 if it does not know.
    virtual std::size_t uncounted() const noexcept { return 0; }

    amalgam::argobots::own_pool* own = nullptr;  ///< Itself, if it is of ours: no virtual calls.
    ABT_pool_access access_kind;
    bool automatic;
    void* data = nullptr;
    const int id;
    std::atomic<int> schedulers{0};
    std::atomic<int> holders{0};  ///< ULTs that are moving into it, or `closed`.
    static constexpr int closed = -1;
    std::atomic<bool> is_goal{false};  ///< See runtime::note_goal().

protected:
    ABT_pool_opaque(ABT_pool_access how, bool automatically) noexcept;
    /// First of all at its end. Waits for those that are moving into it.
    void turn_away() noexcept;

private:
    bool looks_done() const noexcept;
    virtual void put(thread& who, ABT_pool_context why) noexcept = 0;
};

namespace amalgam::argobots {

/// FIFO, or with `stealing` a deque: new units at the head, whence its own stream takes; others
/// take from the tail.
///
/// A private one is biased to its stream, which then needs no atomic operation; others pay a
/// barrier on all threads, until some of them have come.
class own_pool final : public ABT_pool_opaque {
public:
    own_pool(ABT_pool_kind which, ABT_pool_access how, bool automatically) noexcept
        : ABT_pool_opaque(how, automatically),
          kind(which),
          biased_(how == ABT_POOL_ACCESS_PRIV && detail::barrier_on_all_threads()),
          others_(!biased_) {
        own = this;
    }
    ~own_pool() override;

    thread* take(ABT_pool_context why) override;
    thread* take_in_line(ABT_pool_context why);
    bool remove_thread(thread& who) override;
    void for_each(void (*visit)(void* arg, thread& who), void* arg) override;
    ABT_unit create_unit(thread& who) override { return who.own_unit(); }
    void free_unit(ABT_unit) noexcept override {}
    bool empty() const noexcept override;
    std::size_t size() const noexcept override { return size_.load(std::memory_order_relaxed); }

    std::size_t uncounted() const noexcept override {
        const std::size_t all = size(), counted = counted_.load(std::memory_order_relaxed);
        return all > counted ? all - counted : 0;
    }
    /// What `is_wanted` says of the next one decides whether it is taken. May take `spare`, the
    /// memory of a descriptor or null, for put_anew().
    template <typename Wanted>
    thread* take_if(Wanted is_wanted, void*& spare);
    /// Adds what `make` makes of such memory. False: there is none, or the caller is another
    /// stream.
    template <typename Make>
    bool put_anew(Make make) noexcept;
    /// Adds one that has just been created or revived.
    void put_new(thread& who) noexcept;
    /// Adds `one` to its joiners, if it is in here: what runs it later sees that. False: it is not.
    /// `only_one`: nobody else begins to join it.
    bool note_joiner(thread& who, joiner& one, bool only_one) noexcept;
    /// A ULT of the calling stream yields to the first one in here, or to `next`, and stands in
    /// here then. False: nothing happened; yield otherwise.
    bool rotate(thread& who) noexcept;
    bool rotate(thread& who, thread& next) noexcept;
    /// Whether the calling stream has it for itself, as far as it knows.
    bool is_private_here() const noexcept {
        return !others_.load(std::memory_order_relaxed) && on_own_stream();
    }

    const ABT_pool_kind kind;

private:
    friend ABT_pool_opaque;
    void put(thread& who, ABT_pool_context why) noexcept override;
    template <bool is_new = false>
    void put_in_line(thread& who, ABT_pool_context why) noexcept;
    void let_in_visitor() const noexcept;
    void keep_spare(void*& spare) noexcept;
    void unlink(thread& who) noexcept;
    void put_new_slowly(thread& who) noexcept;
    void unlink_first(thread& who) noexcept;
    void append(thread& who) noexcept;
    void prepend(thread& who) noexcept;
    void put_last_for_first(thread& who, thread& first) noexcept;
    bool yield_within(thread& who, thread& next) noexcept;
    bool enter_quickly() noexcept;
    void count(const thread& who, std::size_t more) noexcept;
    class locked;

    mutable std::atomic_flag busy_;
    mutable bool biased_;                      // with busy_
    mutable unsigned visits_ = 0;              // of others, while biased_
    mutable std::atomic<bool> others_;         // in here, or may be: its stream needs busy_, too
    mutable std::atomic<bool> own_in_{false};  // its stream is, without busy_
    thread* head_ = nullptr;
    thread* tail_ = nullptr;
    std::atomic<std::size_t> size_{0};     // changed under the lock, as the next
    std::atomic<std::size_t> counted_{0};  // of these, by ults(); new ones are not
    // Memory of descriptors, each with the next one's address: its stream's, without busy_. Others
    // see at most that there is some.
    std::atomic<void*> spares_{nullptr};
    unsigned spare_number_ = 0;
};

/// What a user's pool consists of: one of the two forms.
struct pool_functions {
    ABT_pool_user_create_unit_fn create_unit = nullptr;
    ABT_pool_user_free_unit_fn free_unit = nullptr;
    ABT_pool_user_is_empty_fn is_empty = nullptr;
    ABT_pool_user_pop_fn pop = nullptr;
    ABT_pool_user_push_fn push = nullptr;
    ABT_pool_user_init_fn init = nullptr;
    ABT_pool_user_free_fn free = nullptr;
    ABT_pool_user_get_size_fn get_size = nullptr;
    ABT_pool_user_pop_wait_fn pop_wait = nullptr;
    ABT_pool_user_pop_many_fn pop_many = nullptr;
    ABT_pool_user_push_many_fn push_many = nullptr;
    ABT_pool_user_print_all_fn print_all = nullptr;
};

/// What ABT_pool_user_def_create() made; null: `def` is a struct of the user's, in the old form.
pool_functions* made_pool_functions(ABT_pool_user_def def) noexcept;

/// Unit handles are the user's; a table leads from each to its thread.
ABT_thread_opaque* thread_of(ABT_unit unit) noexcept;

class user_pool final : public ABT_pool_opaque {
public:
    user_pool(const pool_functions& functions, bool automatically) noexcept;
    user_pool(const ABT_pool_def& functions, bool automatically) noexcept;
    ~user_pool() override;
    /// An error number.
    int init(ABT_pool_config config);

    thread* take(ABT_pool_context why) override;
    thread* take_wait(double seconds, ABT_pool_context why) override;
    std::size_t take_many(thread** to, std::size_t most, ABT_pool_context why) override;
    void add_many(thread* const* which, std::size_t number, ABT_pool_context why) override;
    bool remove_thread(thread& who) override;
    void for_each(void (*visit)(void* arg, thread& who), void* arg) override;
    void print_threads(void* arg, void (*print)(void* arg, ABT_thread)) override;
    void print_units(void* arg, void (*print)(void* arg, ABT_unit)) override;
    ABT_unit create_unit(thread& who) override;
    void free_unit(ABT_unit unit) noexcept override;
    bool empty() const noexcept override;
    std::size_t size() const noexcept override;

private:
    void put(thread& who, ABT_pool_context why) noexcept override;

    const bool old_form_;
    bool began_ = false;
    pool_functions now_;
    ABT_pool_def old_{};
};

}  // namespace amalgam::argobots
