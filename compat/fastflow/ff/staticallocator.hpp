#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ff/utils.hpp>

namespace ff {

/// A fixed number of slots for items, in rings: one for each channel of the node that sends them.
///
/// Owner:   slots live as long as the allocator, and so must items that are still used.
/// Threads: alloc() of different channels, and dealloc(), from any; alloc() of one channel, and
///          init(), from one at a time.
/// Failure: init() returns -1 with a sentence on stderr. alloc() throws std::logic_error before
///          init(), for a channel that is not there, and for a type that is larger than a slot.
/// Cost:    alloc() is a few instructions while a slot is free; else it yields until one is.
class StaticAllocator {
public:
    /// `slots` in all, rounded up to a multiple of `channels`; an item has at most `slot_bytes`.
    StaticAllocator(size_t slots, size_t slot_bytes, int channels = 1)
        : channels_(channels),
          bytes_(slot_bytes),
          per_channel_(channels > 0 ? (slots + static_cast<size_t>(channels) - 1) /
                                          static_cast<size_t>(channels)
                                    : 0) {}
    StaticAllocator(const StaticAllocator&) = delete;
    StaticAllocator& operator=(const StaticAllocator&) = delete;

    /// Makes the slots, all free. Once more: others, and items in the former ones stay as they are.
    int init() {
        if (per_channel_ == 0 || bytes_ == 0) {
            error(
                "StaticAllocator: no slots, or slots of no bytes; example: StaticAllocator(8, "
                "sizeof(item))\n");
            return -1;
        }
        const size_t stride =
            (sizeof(header) + bytes_ + alignof(header) - 1) & ~(alignof(header) - 1);
        const size_t all = per_channel_ * static_cast<size_t>(channels_);
        if (stride <= bytes_ || all > static_cast<size_t>(-1) / 2 / stride) {
            error("StaticAllocator: %zu slots of %zu bytes are more than memory has\n", all,
                  bytes_);
            return -1;
        }
        std::unique_ptr<char[]> memory(new (std::nothrow) char[all * stride]);
        if (memory == nullptr) {
            error("StaticAllocator: no memory for %zu slots of %zu bytes\n", all, bytes_);
            return -1;
        }
        for (size_t at = 0; at != all; ++at)
            new (memory.get() + at * stride) header;
        stride_ = stride;
        next_.assign(static_cast<size_t>(channels_), 0);
        memory_.push_back(std::move(memory));
        return 0;
    }

    /// A new T in a slot of `channel`; waits for one that is free.
    template <typename T>
    void alloc(T*& item, int channel = 0) {
        static_assert(alignof(T) <= alignof(header));
        check(sizeof(T), channel);
        size_t& next = next_[static_cast<size_t>(channel)];
        char* const first =
            memory_.back().get() + static_cast<size_t>(channel) * per_channel_ * stride_;
        for (size_t tried = 1;; ++tried) {
            char* const slot = first + next * stride_;
            next = next + 1 == per_channel_ ? 0 : next + 1;
            header& state = *std::launder(reinterpret_cast<header*>(slot));
            if (state.free.load(std::memory_order_acquire)) {
                item = new (slot + sizeof(header)) T();
                state.free.store(false, std::memory_order_relaxed);
                return;
            }
            if (tried % per_channel_ == 0) std::this_thread::yield();
        }
    }
    /// Destroys it; its slot is free.
    template <typename T>
    static void dealloc(T* item) {
        item->~T();
        reinterpret_cast<header*>(reinterpret_cast<char*>(item) - sizeof(header))
            ->free.store(true, std::memory_order_release);
    }
    /// Another object in the slot of `in`, which is destroyed.
    template <typename T, typename S>
    void realloc(T* in, S*& out) {
        static_assert(alignof(S) <= alignof(header));
        check(sizeof(S), 0);
        in->~T();
        out = new (static_cast<void*>(in)) S();
    }

private:
    struct alignas(std::max_align_t) header {
        std::atomic<bool> free{true};
    };

    void check(size_t bytes, int channel) const {
        if (memory_.empty())
            throw std::logic_error("StaticAllocator::alloc() before init(), expected init() first");
        if (channel < 0 || channel >= channels_)
            throw std::logic_error("StaticAllocator: channel " + std::to_string(channel) +
                                   " does not exist, expected one below " +
                                   std::to_string(channels_));
        if (bytes > bytes_)
            throw std::logic_error("StaticAllocator: an item of " + std::to_string(bytes) +
                                   " bytes, expected at most " + std::to_string(bytes_));
    }

    int channels_;
    size_t bytes_;
    size_t per_channel_;
    size_t stride_ = 0;
    std::vector<size_t> next_;  // slot to try, of each channel
    std::vector<std::unique_ptr<char[]>> memory_;
};

}  // namespace ff
