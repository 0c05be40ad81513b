#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstdint>
#include <new>
#include <string>
#include <thread>

#include <sys/mman.h>

#include <amalgam/core/buffer.hpp>
#include <amalgam/core/status.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define AMALGAM_POISONS_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AMALGAM_POISONS_MEMORY 1
#endif
#endif
#ifdef AMALGAM_POISONS_MEMORY
#include <sanitizer/asan_interface.h>
#endif

namespace amalgam {
namespace detail {

struct buffer_block {
    pool_core* core;     // Null: allocated from the heap and returned to it.
    buffer_block* next;  // While free.
    std::size_t capacity;
    std::uint8_t size_class;
    std::uint8_t shard;  // The shard it returns to.
};

namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t header_bytes = 64;
static_assert(sizeof(buffer_block) <= header_bytes);

constexpr std::size_t class_count = 19;
constexpr std::uint8_t no_class = 255;  // Larger than the largest class: never kept.
static_assert(buffer_pool::smallest_bytes << (class_count - 1) == buffer_pool::largest_bytes);

constexpr std::size_t shard_count = 4;
static_assert(std::has_single_bit(shard_count));
constexpr std::size_t unsharded_bytes = std::size_t{64} << 10;

constexpr std::size_t bytes_of_class(std::size_t size_class) noexcept {
    return buffer_pool::smallest_bytes << size_class;
}

constexpr std::size_t class_for(std::size_t bytes) noexcept {
    if (bytes <= buffer_pool::smallest_bytes) return 0;
    return static_cast<std::size_t>(std::bit_width(bytes - 1)) -
           (std::bit_width(buffer_pool::smallest_bytes) - 1);
}
static_assert(class_for(256) == 0 && class_for(257) == 1 && class_for(512) == 1);
static_assert(class_for(buffer_pool::largest_bytes) == class_count - 1);

std::byte* bytes_of(buffer_block* block) noexcept {
    return reinterpret_cast<std::byte*>(block) + header_bytes;
}

// Free bytes are poisoned for AddressSanitizer, so that use after return is detected.
void hide([[maybe_unused]] buffer_block* block) noexcept {
#ifdef AMALGAM_POISONS_MEMORY
    __asan_poison_memory_region(bytes_of(block), block->capacity);
#endif
}

void show([[maybe_unused]] buffer_block* block) noexcept {
#ifdef AMALGAM_POISONS_MEMORY
    __asan_unpoison_memory_region(bytes_of(block), block->capacity);
#endif
}

/// New memory costs a page fault for each page that is touched. Pages of 2 MiB save most of them in
/// large blocks, where the system has such pages.
void want_huge_pages(void* raw, std::size_t bytes) noexcept {
    constexpr std::uintptr_t huge = std::uintptr_t{2} << 20;
    if (bytes < 2 * huge) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t first = (begin + huge - 1) & ~(huge - 1);
    const std::uintptr_t last = (begin + bytes) & ~(huge - 1);
    // Refused: small pages serve as well.
    if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

buffer_block* heap_block(pool_core* core, std::size_t capacity) noexcept {
    if (capacity > PTRDIFF_MAX - header_bytes - alignment) return nullptr;
    void* raw = ::operator new (header_bytes + capacity, std::align_val_t{alignment}, std::nothrow);
    if (raw == nullptr) return nullptr;
    want_huge_pages(raw, header_bytes + capacity);
    return new (raw) buffer_block{core, nullptr, capacity, no_class, 0};
}

void free_heap_block(buffer_block* block) noexcept {
    show(block);
    ::operator delete (block, std::align_val_t{alignment});
}

/// Spreads threads over shards: each thread keeps the number it drew.
std::size_t thread_number() noexcept {
    static std::atomic<std::uint32_t> next{0};
    static constinit thread_local std::uint32_t mine = 0;
    if (mine == 0) mine = 1 + next.fetch_add(1, std::memory_order_relaxed);
    return mine;
}

void pause(std::size_t tries) noexcept {
    if (tries > 16) std::this_thread::yield();
}

[[noreturn]] void throw_no_memory(std::size_t size) {
    throw error(errc::no_memory, "cannot allocate a buffer of " + std::to_string(size) +
                                     " bytes; free memory, or send smaller pieces");
}

}  // namespace

/// The part of a pool that its buffers keep alive.
///
/// Every block, in use or free, holds one reference from allocation to release, and the pool holds
/// one. So taking and returning touch no counter, only the shard.
class pool_core {
public:
    explicit pool_core(std::size_t keep_bytes_per_class) noexcept {
        for (std::size_t c = 0; c < class_count; ++c) {
            std::size_t kept = keep_bytes_per_class / shards_of(c) / bytes_of_class(c);
            most_kept_[c] = kept == 0 ? 1 : kept;
        }
    }

    buffer_block* take(std::size_t size) noexcept {
        if (size <= buffer_pool::smallest_bytes) [[likely]]
            if (buffer_block* const block = take_at(thread_number() & (shard_count - 1)))
                return block;
        return take_any(size);
    }

    /// One of the smallest; null: not there, or not now.
    buffer_block* take_at(std::size_t home) noexcept {
        shard& s = shards_[0][home];
        if (!s.try_lock()) return nullptr;
        buffer_block* const block = s.pop();
        s.unlock();
        if (block != nullptr) block->shard = static_cast<std::uint8_t>(home);
        return block;
    }

    [[gnu::noinline]] buffer_block* take_any(std::size_t size) noexcept {
        if (size > buffer_pool::largest_bytes) return allocate(size, no_class, 0);
        std::size_t c = class_for(size);
        std::size_t shards = shards_of(c);
        std::size_t home = thread_number() & (shards - 1);  // A division costs as much as the rest.
        // A single shard holds large blocks, where some waiting is cheaper than new pages.
        std::size_t tries = shards == 1 ? 64 : shards;
        for (std::size_t i = 0; i < tries; ++i) {
            shard& s = shards_[c][(home + i) & (shards - 1)];
            if (!s.try_lock()) {
                if (shards == 1) pause(i);
                continue;
            }
            buffer_block* block = s.pop();
            s.unlock();
            if (block != nullptr) {
                block->shard = static_cast<std::uint8_t>(home);
                return block;
            }
            if (shards == 1) break;
        }
        return allocate(bytes_of_class(c), static_cast<std::uint8_t>(c), home);
    }

    void give_back(buffer_block* block) noexcept {
        if (block->size_class == no_class) return release(block);
        hide(block);
        shard& s = shards_[block->size_class][block->shard];
        if (!s.try_lock()) {
            if (!s.push_unlocked(block)) release(block);
            return;
        }
        block->next = nullptr;
        buffer_block* excess = block;
        if (!s.closed) {
            s.push(block);
            excess = s.drop_past(most_kept_[block->size_class]);
        }
        s.unlock();
        release_all(excess);
    }

    void trim(bool for_good) noexcept {
        each_shard([&](shard& s, std::size_t) {
            s.lock();
            s.collect(for_good ? shard::closed_mark() : nullptr);
            buffer_block* all = s.drop_past(0);
            s.closed = for_good;
            s.unlock();
            release_all(all);
        });
    }

    buffer_pool_counts counts() noexcept {
        buffer_pool_counts out;
        each_shard([&](shard& s, std::size_t c) {
            s.lock();
            s.collect(nullptr);
            out.idle_bytes += s.kept * bytes_of_class(c);
            s.unlock();
        });
        out.freed = freed_.load(std::memory_order_relaxed);
        out.allocated = allocated_.load(std::memory_order_relaxed);
        return out;
    }

    void unref() noexcept {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

private:
    /// A stack of free blocks. Its lock is only tried, except that trim() and counts() wait for it.
    struct alignas(64) shard {
        std::atomic<bool> busy{false};
        bool closed = false;
        std::size_t kept = 0;
        buffer_block* free = nullptr;
        // Returned while the lock was busy; joins `free` at the next pop.
        std::atomic<buffer_block*> returned{nullptr};

        static constinit inline buffer_block mark{};
        static buffer_block* closed_mark() noexcept { return &mark; }

        bool try_lock() noexcept { return !busy.exchange(true, std::memory_order_acquire); }
        void lock() noexcept {
            while (!try_lock())
                std::this_thread::yield();
        }
        void unlock() noexcept { busy.store(false, std::memory_order_release); }

        void push(buffer_block* block) noexcept {
            block->next = free;
            free = block;
            ++kept;
        }

        buffer_block* pop() noexcept {
            if (free == nullptr) collect(nullptr);
            buffer_block* block = free;
            if (block == nullptr) return nullptr;
            free = block->next;
            --kept;
            show(block);
            return block;
        }

        /// False: the pool is closed, and the block still belongs to the caller.
        bool push_unlocked(buffer_block* block) noexcept {
            buffer_block* head = returned.load(std::memory_order_relaxed);
            do {
                if (head == closed_mark()) return false;
                block->next = head;
            } while (!returned.compare_exchange_weak(head, block, std::memory_order_release,
                                                     std::memory_order_relaxed));
            return true;
        }

        void collect(buffer_block* leave) noexcept {
            if (leave == nullptr && returned.load(std::memory_order_relaxed) == nullptr) return;
            buffer_block* block = returned.exchange(leave, std::memory_order_acquire);
            while (block != nullptr) {
                buffer_block* next = block->next;
                push(block);
                block = next;
            }
        }

        buffer_block* drop_past(std::size_t most) noexcept {
            buffer_block* dropped = nullptr;
            while (kept > most) {
                buffer_block* block = free;
                free = block->next;
                --kept;
                block->next = dropped;
                dropped = block;
            }
            return dropped;
        }
    };

    static constexpr std::size_t shards_of(std::size_t size_class) noexcept {
        return bytes_of_class(size_class) < unsharded_bytes ? shard_count : 1;
    }

    template <typename Visit>
    void each_shard(Visit visit) noexcept {
        for (std::size_t c = 0; c < class_count; ++c) {
            for (std::size_t i = 0; i < shards_of(c); ++i)
                visit(shards_[c][i], c);
        }
    }

    buffer_block* allocate(std::size_t capacity, std::uint8_t size_class,
                           std::size_t home) noexcept {
        buffer_block* block = heap_block(this, capacity);
        if (block == nullptr) return nullptr;
        block->size_class = size_class;
        block->shard = static_cast<std::uint8_t>(home);
        references_.fetch_add(1, std::memory_order_relaxed);
        allocated_.fetch_add(1, std::memory_order_relaxed);
        return block;
    }

    void release(buffer_block* block) noexcept {
        free_heap_block(block);
        freed_.fetch_add(1, std::memory_order_relaxed);
        unref();
    }

    void release_all(buffer_block* block) noexcept {
        while (block != nullptr) {
            buffer_block* next = block->next;
            release(block);
            block = next;
        }
    }

    std::array<std::array<shard, shard_count>, class_count> shards_;
    std::array<std::size_t, class_count> most_kept_{};  // Blocks per shard.
    std::atomic<std::size_t> references_{1};
    std::atomic<std::uint64_t> allocated_{0};
    std::atomic<std::uint64_t> freed_{0};
};

void give_back(buffer_block* block) noexcept {
    if (block->core == nullptr) {
        free_heap_block(block);
    } else {
        block->core->give_back(block);
    }
}

}  // namespace detail

buffer::buffer(detail::buffer_block* block, std::size_t size) noexcept
    : block_(block), data_(detail::bytes_of(block)), size_(size) {}

buffer buffer::of(std::size_t size) {
    detail::buffer_block* block = detail::heap_block(nullptr, size);
    if (block == nullptr) detail::throw_no_memory(size);
    return buffer(block, size);
}

std::size_t buffer::capacity() const noexcept {
    return block_ == nullptr ? 0 : block_->capacity;
}

void buffer::resize(std::size_t size) noexcept {
    assert(size <= capacity() && "buffer::resize() beyond its capacity");
    size_ = size;
}

buffer_pool::buffer_pool(buffer_pool_options options)
    : core_(new detail::pool_core(options.keep_bytes_per_class)) {}

buffer_pool::~buffer_pool() {
    core_->trim(true);
    core_->unref();
}

buffer buffer_pool::try_take(std::size_t size) noexcept {
    detail::buffer_block* block = core_->take(size);
    return block == nullptr ? buffer() : buffer(block, size);
}

buffer buffer_pool::take(std::size_t size) {
    detail::buffer_block* block = core_->take(size);
    if (block == nullptr) detail::throw_no_memory(size);
    return buffer(block, size);
}

void buffer_pool::trim() noexcept {
    core_->trim(false);
}

buffer_pool_counts buffer_pool::counts() const noexcept {
    return core_->counts();
}

}  // namespace amalgam
