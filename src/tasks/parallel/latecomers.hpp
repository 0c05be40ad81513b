#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <amalgam/tasks/detail/posted_tasks.hpp>
#include <amalgam/tasks/extension/small_block.hpp>

namespace amalgam::detail {

/// The ULTs that are posted for one loop and have not begun. Once nothing is left for them, they
/// are turned away, and the loop does not wait for them: so this outlives it.
///
/// Owner:   the loop, and each of these ULTs; the last one frees it.
/// Threads: any.
class latecomers {
public:
    /// Throws std::bad_alloc.
    static latecomers& of(posted_tasks& those_in) {
        return *::new (allocate_block(sizeof(latecomers))) latecomers(those_in);
    }

    /// One ULT's place. Not let in at its end: it never began.
    class place {
    public:
        explicit place(latecomers& in) noexcept : in_(&in) {}
        place(place&& other) noexcept : in_(std::exchange(other.in_, nullptr)) {}
        place& operator=(place&&) = delete;
        ~place() {
            if (in_ != nullptr && let_in()) leave();
        }
        /// False: it is turned away, and the loop may have ended.
        bool let_in() noexcept {
            latecomers& in = *std::exchange(in_, nullptr);
            those_in_ = &in.those_in_;
            return in.let_in();
        }
        /// After let_in().
        void leave() noexcept { those_in_->leave(1); }

    private:
        latecomers* in_;
        posted_tasks* those_in_ = nullptr;
    };

    /// One more is to be posted. False: they are turned away now. The caller is in.
    bool expect_one() noexcept {
        those_in_.join_in();  // first: from here on it may be turned away, and leave
        std::uint64_t seen = state_.load(std::memory_order_relaxed);
        while ((seen & turned_away) == 0) {
            if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_relaxed))
                return true;
        }
        those_in_.leave(1);
        return false;
    }

    /// Nothing is left to do. The caller is in. Those turned away keep their stacks until they have
    /// had their turn, so of the process's loops only so many are.
    void turn_away() noexcept {
        std::uint64_t seen = state_.load(std::memory_order_relaxed);
        std::uint64_t number;
        do {
            number = seen - 1;  // but for the loop
            if ((seen & turned_away) != 0 || number == 0) return;
            if (number + in_vain_.load(std::memory_order_relaxed) > most_in_vain) return;
        } while (
            !state_.compare_exchange_weak(seen, seen | turned_away, std::memory_order_relaxed));
        in_vain_.fetch_add(number, std::memory_order_relaxed);
        those_in_.leave(number);
    }

    /// By the loop at its end, and by each that is turned away.
    void release() noexcept {
        if ((state_.fetch_sub(1, std::memory_order_acq_rel) & ~turned_away) != 1) return;
        std::destroy_at(this);
        free_block(this, sizeof *this);
    }

private:
    static constexpr std::uint64_t turned_away = std::uint64_t{1} << 63;
    static constexpr std::uint64_t most_in_vain = 64;
    inline static std::atomic<std::uint64_t> in_vain_{0};  // turned away, and have not begun

    explicit latecomers(posted_tasks& those_in) noexcept : those_in_(those_in) {}

    bool let_in() noexcept {
        std::uint64_t seen = state_.load(std::memory_order_relaxed);
        while ((seen & turned_away) == 0) {
            if (state_.compare_exchange_weak(seen, seen - 1, std::memory_order_relaxed))
                return true;
        }
        in_vain_.fetch_sub(1, std::memory_order_relaxed);
        release();
        return false;
    }

    posted_tasks& those_in_;               // while not turned_away
    std::atomic<std::uint64_t> state_{1};  // turned_away, and how many refer to this
};

}  // namespace amalgam::detail
