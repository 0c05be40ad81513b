#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/context/detail/fcontext.hpp>

#include "model_check/checker/checker.hpp"
#include "model_check/checker/memory.hpp"

namespace amalgam::model {

/// A step that other threads can notice.
enum class kind : std::uint8_t {
    load,
    store,
    change,   ///< Reads and writes.
    compare,  ///< Reads, and writes if it read what was expected.
    fence,
    fence_all,
    yield,
    strike,  ///< Of a wake_up, or of a futex.
    wait,
    futex_look,  ///< Reads the newest value, as the kernel does.
    futex_sleep,
    lock,  ///< Of a mutex, whose first word is 0 while it is free.
    unlock
};

struct step {
    kind what = kind::yield;
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::memory_order order = std::memory_order_relaxed;
    std::memory_order on_failure = std::memory_order_relaxed;
    std::uint64_t operand = 0;   ///< What to store, or to add.
    std::uint64_t expected = 0;  ///< By a compare.
    std::uint64_t (*combine)(std::uint64_t, std::uint64_t) = nullptr;  ///< By a change.
    std::size_t where = 0;                                             ///< Its place.
    std::bitset<max_places> watched{};  ///< Places that a yield waits for.

    bool writes() const noexcept;
};

/// Runs programs in all ways: depth first, with partial order reduction (Flanagan and Godefroid's
/// dynamic one, and sleep sets).
class explorer {
public:
    explorer(const std::function<void(execution&)>& build, options how)
        : build_(build), how_(how) {}
    result run();

    /// Of the thread that runs now; null: none does, or the explorer itself.
    static explorer* current() noexcept { return current_; }
    /// Of the execution that is set up, runs or is checked; null: none, or the explorer itself.
    static explorer* allocating() noexcept { return allocating_; }

    /// Does the step when it is this thread's turn; returns what it read.
    std::uint64_t take(step what);
    void plain(std::uintptr_t address, std::size_t bytes, bool writes);
    void* allocate(std::size_t bytes, std::size_t alignment);
    /// False: it was not allocated for an execution.
    static bool is_own(const void* at) noexcept;
    static void free(void* at);
    [[noreturn]] void fail(const char* why);
    static void fail_afterwards(const char* why);

private:
    struct thread {
        enum class state : std::uint8_t { ready, done };
        state is = state::ready;
        void* context = nullptr;
        std::function<void()> body;
        step next;
        std::uint64_t got = 0;
        /// For waits in loops: the last step was a load of this place that got this store, so
        /// often.
        std::size_t looked_at = max_places, looked_position = 0, looks = 0;
        /// Places read since the last yield, and up to which position.
        std::vector<std::pair<std::size_t, std::size_t>> watched;
        bool is_woken = false;
        std::array<int, max_threads> after{};  ///< Events of each thread that come before it.
    };
    struct event {
        std::size_t thread = 0;
        step what;
        std::size_t node = 0;
        int number = 0;  ///< Of its thread, from 1.
        std::uint64_t got = 0;
        std::array<int, max_threads> after{};
    };
    /// A point of choice.
    struct node {
        bool is_data = false;
        std::size_t chosen = 0;
        std::size_t count = 0;                                     ///< Of data.
        unsigned enabled = 0, backtrack = 0, done = 0, sleep = 0;  ///< Threads.
    };

    void run_once();
    bool go_on();
    std::size_t pick(unsigned enabled);
    std::size_t choose(std::size_t count);
    bool next_way();
    void resume(std::size_t thread);
    static void enter(boost::context::detail::transfer_t from);
    void run_body() noexcept;
    bool is_enabled(const thread& who) noexcept;
    bool is_reluctant(const thread& who) noexcept;
    void find_races(std::size_t who);
    void reverse(std::size_t event, std::size_t who);
    void perform(std::size_t who);
    void load(std::size_t who, event& what);
    void store(std::size_t who, event& what);
    void change(std::size_t who, event& what, bool compares);
    void change_mutex(std::size_t who, event& what);
    void wake_futex(const event& what);
    std::memory_order weakened(const step& what, act as, std::memory_order order) const noexcept;
    /// Whether a step that takes the store at this position of the modification order equals one
    /// before all stores that raced with it.
    std::vector<std::size_t> not_repeated(std::size_t who, std::size_t where,
                                          std::vector<std::size_t> positions, bool reads) const;
    void keep_ordered(std::size_t who, std::size_t where, std::memory_order order,
                      std::vector<std::size_t>& positions, bool writes) const;
    static bool depends(const step& one, const step& other) noexcept;
    std::string told() const;

    /// While it lives, what is called is not part of the program.
    class outside;

    /// Loads of the same store in a row. From the first of these on they are not steps, as they
    /// change nothing; after the second number a thread waits for another store.
    static constexpr std::size_t free_looks = 2, most_looks = 16;

    inline static explorer* current_ = nullptr;
    inline static explorer* allocating_ = nullptr;
    inline static explorer* running_one_ = nullptr;

    const std::function<void(execution&)>& build_;
    options how_;
    memory memory_;
    std::vector<node> nodes_;
    std::size_t at_ = 0;  ///< The node that comes next.
    unsigned sleep_ = 0;
    std::array<thread, max_threads> threads_;
    std::size_t count_ = 0, running_ = 0;
    std::vector<event> events_;
    std::size_t rounds_without_store_ = 0;
    std::unique_ptr<execution> program_;
    std::string failure_;
    bool is_cut_ = false;
    std::size_t allocated_ = 0;  ///< Bytes of the arena.
    void* scheduler_ = nullptr;
};

}  // namespace amalgam::model
