#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <amalgam/tasks/detail/unit_list.hpp>
#include <amalgam/tasks/pool.hpp>

namespace amalgam {

/// First in, first out. Any thread pushes, one stream pops.
///
/// Cost: a push by the serving stream links two pointers; from elsewhere it is one
///       compare-and-swap, and an eventfd write only when the stream sleeps.
class fifo_pool final : public pool {
public:
    ~fifo_pool() override { drop_left(); }

    void push(work_unit& unit) noexcept override;
    void push_by_priority(work_unit& unit) noexcept override;
    work_unit* pop() noexcept override { return pop_in_turn(pops_++); }
    bool remove(work_unit& unit) noexcept override;
    bool empty() const noexcept override;
    std::size_t size() const noexcept override;

private:
    friend class detail::stream;

    /// `turn`: changes by one with each pop. Others write the inbox, so it is not looked at every
    /// time, unless they say so; but not only when all else is done, or ULTs that yield to each
    /// other would keep all others out.
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
    /// push_own() and pop() in one; the unit itself when it is alone.
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
    void push_outside(work_unit& unit) noexcept;
    void drain_inbox() noexcept;
    void server_changed() noexcept override;
    std::uintptr_t empty_inbox() const noexcept;
    static bool has_units(std::uintptr_t inbox) noexcept { return (inbox & empty_mark) == 0; }

    static constexpr std::size_t most_unlooked = 7;  // Pops between two looks; one less than 2^n.

    // The serving stream's part.
    detail::unit_list own_;
    std::size_t pops_ = 0;
    std::atomic<std::size_t> own_size_{0};  // written by the serving stream only
    // Others set it to 0 for what is not to wait.
    std::atomic<std::size_t> unlooked_{most_unlooked};
    // Everybody else's part, on its own line: newest first, taken whole. Empty, it is the server's
    // bell, marked: who adds the first unit rings the bell that it replaced. Read apart from that,
    // the bell may be of a stream that stopped serving the pool before the unit came.
    static constexpr std::uintptr_t empty_mark = 1;
    alignas(64) std::atomic<std::uintptr_t> inbox_{empty_mark};
    std::atomic<std::size_t> inbox_size_{0};
};

}  // namespace amalgam
