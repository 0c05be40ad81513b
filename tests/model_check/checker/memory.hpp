#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace amalgam::model {

inline constexpr std::size_t max_threads = 4;
inline constexpr std::size_t max_places = 160;

/// How much of each thread happened before something; for races.
using clock_of_threads = std::array<std::uint16_t, max_threads>;
/// For each atomic, the number of the oldest store that may still be read.
using view = std::array<std::uint8_t, max_places>;

/// A view, and what happened before it.
struct knowledge {
    view seen{};
    clock_of_threads before{};
};

/// A store to an atomic, its initial value included.
struct stored {
    std::uint64_t value = 0;
    std::size_t position = 0;  ///< In the modification order.
    int event = -1;            ///< That made it; -1: the initial value.
    bool is_taken = false;     ///< A change read it: the next in the modification order.
    knowledge carries;         ///< For who reads it with acquire.
};

/// An atomic.
struct place {
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
    std::vector<stored> stores;       ///< In the order of execution.
    std::vector<std::uint8_t> order;  ///< Their numbers in the modification order.
    clock_of_threads accessed{}, written{};
};

/// Memory as C++20 has it, without promises: what a thread does takes effect in the order of its
/// program, but others may see it later, and a store may come before an executed one in the
/// modification order.
class memory {
public:
    void start(std::size_t threads);

    /// The atomic at that address; made from what is stored there if it is new.
    std::size_t at(std::uintptr_t address, std::size_t bytes);
    place& of(std::size_t which) noexcept { return places_[which]; }

    /// The first position in the modification order that this thread may read, or write after.
    std::size_t floor(std::size_t thread, std::size_t where, bool seq_cst) const noexcept;
    /// Whether all seq_cst accesses have a common order if this thread now reads at `position`, or
    /// writes after it.
    bool has_order(std::size_t thread, std::size_t where, std::size_t position, bool writes) const;
    /// The access has been done: `store` is what it read, or wrote.
    void put_in_order(std::size_t thread, std::size_t where, std::size_t store, bool writes);
    void read(std::size_t thread, std::size_t where, std::size_t store, std::memory_order order);
    /// Adds a store after `position`. `from`: the store that a change read; -1: none.
    void write(std::size_t thread, std::size_t where, std::uint64_t value, std::size_t position,
               int from, std::memory_order order, int event);
    void fence(std::size_t thread, std::memory_order order);
    void fence_all();
    /// From now on the thread sees the newest store there. Orders nothing else.
    void see_newest(std::size_t thread, std::size_t where) noexcept;
    void tick(std::size_t thread) noexcept { ++threads_[thread].now.before[thread]; }

    /// Plain accesses. An empty text: no race.
    const char* plain(std::size_t thread, std::uintptr_t address, std::size_t bytes, bool writes);
    /// As plain(), for an access by an atomic.
    const char* plain_before_atomic(std::size_t thread, const place& where, bool writes);
    const char* freed(std::size_t thread, std::uintptr_t address, std::size_t bytes);

private:
    struct thread_state {
        knowledge now;      ///< What it must see.
        knowledge acquire;  ///< What it sees after an acquire fence.
        knowledge release;  ///< What its relaxed stores carry since its last release fence.
    };
    /// 8 bytes of plain memory.
    struct cell {
        std::uint32_t run = 0;
        bool is_freed = false;
        std::uint16_t atomic = 0;  ///< 1 more than the place there.
        std::array<std::uint8_t, 8> writer{};
        std::array<std::uint16_t, 8> written{};
        std::array<clock_of_threads, 8> read{};
    };

    using accesses = std::bitset<256>;
    struct seq_cst_access {
        std::size_t thread = 0;
        std::uint16_t tick = 0;
        std::size_t where = 0;
        std::uint8_t store = 0;
        bool writes = false;
        accesses before;  ///< Those that must come before it, and itself.
    };
    /// What must come before and after such an access.
    struct neighbours {
        accesses before, after;
    };
    neighbours order_of(std::size_t thread, std::size_t where, std::size_t position, bool writes,
                        const clock_of_threads& happened) const;

    cell& cell_of(std::uintptr_t address);
    void join(view& into, const view& from) const noexcept;
    void join(knowledge& into, const knowledge& from) const noexcept;
    std::size_t position(std::size_t where, std::uint8_t store) const noexcept {
        return places_[where].stores[store].position;
    }
    void raise(view& what, std::size_t where, std::size_t store) const noexcept;
    const char* check(std::size_t thread, std::uintptr_t address, std::size_t bytes, bool writes,
                      bool marks);
    const char* check_atomic(std::size_t thread, cell& where, std::uintptr_t address,
                             std::size_t bytes, bool writes);

    std::vector<place> places_;
    std::size_t used_ = 0;
    std::size_t thread_count_ = 0;
    std::array<thread_state, max_threads> threads_;
    view fenced_{};    ///< What seq_cst fences have passed.
    view accessed_{};  ///< What seq_cst accesses have passed.
    std::vector<seq_cst_access> seq_cst_;
    std::uint32_t run_ = 0;
    std::unordered_map<std::uintptr_t, cell> cells_;
};

}  // namespace amalgam::model
