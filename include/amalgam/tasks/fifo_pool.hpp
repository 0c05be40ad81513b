#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <amalgam/tasks/detail/unit_list.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// First in, first out. Any thread pushes, one stream pops.
///
/// Cost: a push by the serving stream links two pointers. From other threads it is one
///       compare-and-swap, plus an eventfd write only if the stream sleeps.
class fifo_pool final : public pool {
public:
    ~fifo_pool() override { drop_left(); }

    void push(work_unit& unit) noexcept override;
    void push_by_priority(work_unit& unit) noexcept override;
    work_unit* pop() noexcept override {
        work_unit* const first = pop_in_turn(taken());
        if (first != nullptr) count_taken(1);
        return first;
    }
    void push_many(std::span<work_unit* const> units) noexcept override;
    std::size_t pop_many(std::span<work_unit*> into) noexcept override;
    void visit(unit_visitor see) override;
    bool remove(work_unit& unit) noexcept override;
    bool empty() const noexcept override;
    std::size_t size() const noexcept override;
    std::uint64_t taken() const noexcept override { return taken_.load(std::memory_order_relaxed); }

private:
    friend class detail::ready_work;  // works without virtual calls

    /// `turn` changes by one with each pop. Other threads write the inbox, so it is checked only
    /// every few pops, or when they ask. Checking it only when own_ is empty would let ULTs that
    /// yield to each other starve it.
    work_unit* pop_in_turn(std::size_t turn) noexcept {
        look_at_inbox(turn);
        work_unit* const first = own_.pop_front();
        if (first != nullptr) add_own_size(-1);
        return first;
    }
    void look_at_inbox(std::size_t turn) noexcept {
        if (((turn & unlooked_.load(std::memory_order_relaxed)) == 0 || own_.empty()) &&
            has_units(inbox_.load(std::memory_order_relaxed))) {
            drain_inbox();
        }
    }
    void push_own(work_unit& unit) noexcept {
        own_.push_back(unit);
        add_own_size(1);
    }
    /// push_own() and pop() in one; returns the unit itself if it is alone.
    work_unit* rotate(work_unit& unit, std::size_t turn) noexcept {
        look_at_inbox(turn);
        if (own_.empty()) return &unit;
        if (work_unit* const only = own_.replace_only(unit)) return only;
        own_.push_back(unit);
        return own_.pop_front();
    }
    void add_own_size(std::ptrdiff_t more) noexcept {
        own_size_.store(own_size_.load(std::memory_order_relaxed) + static_cast<std::size_t>(more),
                        std::memory_order_relaxed);
    }
    void count_taken(std::size_t more) noexcept { set_taken(taken() + more); }
    void set_taken(std::uint64_t all) noexcept { taken_.store(all, std::memory_order_relaxed); }
    void push_outside(work_unit& unit) noexcept;
    void push_chain(work_unit& oldest, work_unit& newest) noexcept;
    void drain_inbox() noexcept;
    void server_changed() noexcept override;
    std::uintptr_t empty_inbox() const noexcept;
    static bool has_units(std::uintptr_t inbox) noexcept { return (inbox & empty_mark) == 0; }

    static constexpr std::size_t most_unlooked = 7;  // Pops between two checks; one less than 2^n.

    // Used by the serving stream.
    detail::unit_list own_;
    // Written only by the serving stream.
    std::atomic<std::uint64_t> taken_{0};
    std::atomic<std::size_t> own_size_{0};
    // Set to 0 by others for urgent units.
    std::atomic<std::size_t> unlooked_{most_unlooked};
    // Used by everyone else, on its own cache line: newest first, taken as a whole. When empty it
    // holds the server's bell, marked; whoever adds the first unit rings the bell it replaced. If
    // the bell were read separately, it might belong to a stream that stopped serving the pool
    // before the unit came.
    static constexpr std::uintptr_t empty_mark = 1;
    alignas(64) std::atomic<std::uintptr_t> inbox_{empty_mark};
    std::atomic<std::size_t> inbox_size_{0};
};

}  // namespace amalgam
