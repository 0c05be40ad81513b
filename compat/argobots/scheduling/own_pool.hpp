#pragma once

#include <new>
#include <utility>

#include <amalgam/tasks/extension/cpu_relax.hpp>

#include "scheduling/pool.hpp"

// What each create, yield and end of a unit does with a pool of ours.

namespace amalgam::argobots {

/// Of the stream's two steps and those of others, between which is their barrier, one sees the
/// other.
class own_pool::locked {
public:
    [[gnu::always_inline]] explicit locked(const own_pool& which) noexcept : pool_(which) {
        if (!pool_.others_.load(std::memory_order_relaxed) && pool_.on_own_stream()) {
            pool_.own_in_.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            quickly_ = !pool_.others_.load(std::memory_order_acquire);
            if (quickly_) return;
            pool_.own_in_.store(false, std::memory_order_release);
        }
        while (pool_.busy_.test_and_set(std::memory_order_acquire))
            detail::cpu_relax();
        if (pool_.biased_ && !pool_.on_own_stream()) pool_.let_in_visitor();
    }
    [[gnu::always_inline]] ~locked() {
        if (quickly_) {
            pool_.own_in_.store(false, std::memory_order_release);
        } else {
            if (pool_.biased_) pool_.others_.store(false, std::memory_order_release);
            pool_.busy_.clear(std::memory_order_release);
        }
    }
    /// Without busy_: the caller is its own stream.
    bool quickly() const noexcept { return quickly_; }
    locked(const locked&) = delete;
    locked& operator=(const locked&) = delete;

private:
    const own_pool& pool_;
    bool quickly_ = false;
};

inline void own_pool::count(const thread& who, std::size_t more) noexcept {
    size_.store(size_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    if (who.is_counted()) [[unlikely]]
        counted_.store(counted_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

inline void own_pool::unlink(thread& who) noexcept {
    (who.prev == nullptr ? head_ : who.prev->next) = who.next;
    (who.next == nullptr ? tail_ : who.next->prev) = who.prev;
    who.listed_in.store(nullptr, std::memory_order_relaxed);
    count(who, std::size_t(0) - 1);
}

inline void own_pool::unlink_first(thread& who) noexcept {
    thread* const next = who.next;
    head_ = next;
    (next == nullptr ? tail_ : next->prev) = nullptr;
    who.listed_in.store(nullptr, std::memory_order_relaxed);
    count(who, std::size_t(0) - 1);
}

inline void own_pool::append(thread& who) noexcept {
    who.listed_in.store(this, std::memory_order_relaxed);
    who.next = nullptr;
    who.prev = tail_;
    (tail_ == nullptr ? head_ : tail_->next) = &who;
    tail_ = &who;
    count(who, 1);
}

inline void own_pool::prepend(thread& who) noexcept {
    who.listed_in.store(this, std::memory_order_relaxed);
    who.prev = nullptr;
    who.next = head_;
    (head_ == nullptr ? tail_ : head_->prev) = &who;
    head_ = &who;
    count(who, 1);
}

/// unlink_first() and append() of ULTs that count the same, so there is nothing to count.
inline void own_pool::put_last_for_first(thread& who, thread& first) noexcept {
    thread* const next = first.next;
    first.listed_in.store(nullptr, std::memory_order_relaxed);
    who.listed_in.store(this, std::memory_order_relaxed);
    who.next = nullptr;
    head_ = next == nullptr ? &who : next;
    who.prev = next == nullptr ? nullptr : tail_;
    if (next != nullptr) {
        next->prev = nullptr;
        tail_->next = &who;
    }
    tail_ = &who;
}

/// What locked does first. It ends when own_in_ is cleared.
[[gnu::always_inline]] inline bool own_pool::enter_quickly() noexcept {
    if (others_.load(std::memory_order_relaxed) || !on_own_stream()) return false;
    own_in_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!others_.load(std::memory_order_acquire)) return true;
    own_in_.store(false, std::memory_order_release);
    return false;
}

inline void own_pool::keep_spare(void*& spare) noexcept {
#if defined(__SANITIZE_ADDRESS__)
    constexpr unsigned most = 0;  // which sees each use after the end
#else
    constexpr unsigned most = 128;
#endif
    if (spare == nullptr || spare_number_ >= most) return;
    ++spare_number_;
    ::new (spare) void*(spares_.load(std::memory_order_relaxed));
    spares_.store(std::exchange(spare, nullptr), std::memory_order_relaxed);
}

template <typename Make>
[[gnu::always_inline]] inline bool own_pool::put_anew(Make make) noexcept {
    if (spares_.load(std::memory_order_relaxed) == nullptr || kind == ABT_POOL_RANDWS ||
        has_other_servers() || !enter_quickly())
        return false;
    // By another stream before this one, they may be gone.
    void* const place = spares_.load(std::memory_order_relaxed);
    if (place != nullptr) {
        spares_.store(*static_cast<void**>(place), std::memory_order_relaxed);
        --spare_number_;
        thread& who = make(place);
        who.ends_quickly.store(true, std::memory_order_relaxed);
        append(who);
    }
    own_in_.store(false, std::memory_order_release);
    return place != nullptr;
}

[[gnu::always_inline]] inline void own_pool::put_new(thread& who) noexcept {
    if (kind == ABT_POOL_RANDWS || has_other_servers() || !enter_quickly())
        return put_new_slowly(who);
    who.ends_quickly.store(true, std::memory_order_relaxed);
    append(who);
    own_in_.store(false, std::memory_order_release);
}

template <bool is_new>
[[gnu::always_inline]] inline void own_pool::put_in_line(thread& who,
                                                         ABT_pool_context why) noexcept {
    constexpr ABT_pool_context fresh =
        ABT_POOL_CONTEXT_OP_THREAD_CREATE | ABT_POOL_CONTEXT_OP_THREAD_CREATE_TO |
        ABT_POOL_CONTEXT_OP_THREAD_REVIVE | ABT_POOL_CONTEXT_OP_THREAD_REVIVE_TO;
    detail::bell* sleeper = nullptr;
    {
        const locked hold(*this);
        if constexpr (is_new) who.ends_quickly.store(hold.quickly(), std::memory_order_relaxed);
        kind == ABT_POOL_RANDWS && (why & fresh) != 0 ? prepend(who) : append(who);
        if (!hold.quickly() || has_other_servers()) sleeper = claim_sleeper();
    }
    wake(sleeper);
}

[[gnu::always_inline]] inline own_pool::thread* own_pool::take_in_line(ABT_pool_context why) {
    if (size_.load(std::memory_order_relaxed) == 0) return nullptr;
    const locked hold(*this);
    const bool oldest = kind == ABT_POOL_RANDWS && (why & ABT_POOL_CONTEXT_OWNER_SECONDARY) != 0;
    thread* const who = oldest ? tail_ : head_;
    if (who != nullptr) unlink(*who);
    return who;
}

template <typename Wanted>
[[gnu::always_inline]] inline own_pool::thread* own_pool::take_if(Wanted is_wanted, void*& spare) {
    const auto take = [&]() -> thread* {
        thread* const who = head_;
        if (who == nullptr || !is_wanted(*who)) return nullptr;
        unlink_first(*who);
        return who;
    };
    if (enter_quickly()) [[likely]] {
        keep_spare(spare);
        thread* const who = take();
        own_in_.store(false, std::memory_order_release);
        return who;
    }
    const locked hold(*this);
    return take();
}

}  // namespace amalgam::argobots
