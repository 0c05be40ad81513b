#include "tasks/stacks/memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>

#if defined(AMALGAM_HAS_VALGRIND_HEADER)
#include <valgrind/valgrind.h>

#include "tasks/limits.hpp"
#endif

namespace amalgam::detail {

namespace {

// Costs a few no-op instructions unless the program runs under valgrind.
stack_memory made_known(stack_memory what) noexcept {
#if defined(AMALGAM_HAS_VALGRIND_HEADER)
    what.known_as = static_cast<unsigned>(VALGRIND_STACK_REGISTER(what.bottom(), what.top()));
#endif
    return what;
}

void forget(const stack_memory& what) noexcept {
#if defined(AMALGAM_HAS_VALGRIND_HEADER)
    VALGRIND_STACK_DEREGISTER(what.known_as);
#endif
    static_cast<void>(what);
}

// Which does not know process_madvise(2), and says so.
bool under_valgrind() noexcept {
#if defined(AMALGAM_HAS_VALGRIND_HEADER)
    return RUNNING_ON_VALGRIND != 0;
#else
    return false;
#endif
}

constexpr int madv_guard_install = 102;    // <linux/mman.h> of Linux 6.13
constexpr int madv_populate_write = 23;    // of 5.14
constexpr int pidfd_self_group = -10'001;  // <linux/pidfd.h> of 6.14: this process

std::atomic<bool> shares_mappings{true};

/// A stack whose address space could not be returned, see unmap_stack(). Stored in its own memory.
struct kept_stack {
    stack_memory memory;
    kept_stack* next;
};

struct kept_shelf {
    std::mutex lock;
    std::atomic<kept_stack*> first{nullptr};  // changed under the lock
};
constinit kept_shelf kept;
static_assert(std::is_trivially_destructible_v<kept_shelf>, "threads may end after main()");

// Checks only the first: nearly all stacks have the same size.
stack_memory take_kept(std::size_t bytes) noexcept {
    if (kept.first.load(std::memory_order_relaxed) == nullptr) return {};
    const std::lock_guard hold(kept.lock);
    const kept_stack* const first = kept.first.load(std::memory_order_relaxed);
    if (first == nullptr || first->memory.bytes != bytes) return {};
    kept.first.store(first->next, std::memory_order_relaxed);
    return first->memory;
}

// A mapping has just ended, so there may be room for another hole.
void retry_kept() noexcept {
    if (kept.first.load(std::memory_order_relaxed) == nullptr) return;
    const std::lock_guard hold(kept.lock);
    const kept_stack* const first = kept.first.load(std::memory_order_relaxed);
    if (first == nullptr) return;
    kept_stack* const next = first->next;
    if (::munmap(first->memory.low, first->memory.bytes) == 0) {
        kept.first.store(next, std::memory_order_relaxed);
    }
}

void keep(stack_memory memory) noexcept {
    // The guard stays.
    ::madvise(memory.bottom(), memory.bytes - limits::guard_bytes, MADV_DONTNEED);
    const std::lock_guard hold(kept.lock);
    void* const at = memory.top() - sizeof(kept_stack);
    kept.first.store(::new (at) kept_stack{memory, kept.first.load(std::memory_order_relaxed)},
                     std::memory_order_relaxed);
}

bool install_guard(void* low) noexcept {
    if (shares_mappings.load(std::memory_order_relaxed)) {
        if (::madvise(low, limits::guard_bytes, madv_guard_install) == 0) return true;
        if (errno != EINVAL) return false;
        // An older kernel, or memory that mlockall() locks as it is mapped.
        shares_mappings.store(false, std::memory_order_relaxed);
    }
    return ::mprotect(low, limits::guard_bytes, PROT_NONE) == 0;
}

[[noreturn]] void throw_no_stack(std::size_t usable_bytes, int why) {
    throw error(
        status{errc::no_memory, why},
        fmt::format(
            "cannot allocate a stack of {} bytes for a ULT ({}): run fewer ULTs at a time, or {}",
            usable_bytes, std::strerror(why),
            guards_share_mappings() ? "raise the limit on address space (ulimit -v)"
                                    : "raise vm.max_map_count, as each stack uses two mappings"));
}

// MAP_STACK: no huge pages, whose first touch would commit 2 MiB. The kernel merges adjacent stacks
// into one mapping unless their attributes differ. Null: no memory.
std::byte* map_memory(std::size_t bytes) noexcept {
    void* const low = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    return low == MAP_FAILED ? nullptr : static_cast<std::byte*>(low);
}

stack_memory map_one(std::size_t bytes, std::size_t usable_bytes) {
    std::byte* const low = map_memory(bytes);
    if (low == nullptr) throw_no_stack(usable_bytes, errno);
    if (!install_guard(low)) {
        const int why = errno;
        ::munmap(low, bytes);
        throw_no_stack(usable_bytes, why);
    }
    return {low, bytes};
}

std::size_t page_bytes() noexcept {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Stacks of one size in one mapping, guarded already, that nobody has had yet.
class stack_slab {
public:
    /// Empty: it has another size, or there is no memory for so many. With kept.lock.
    stack_memory take(std::size_t bytes) noexcept {
        if (left_ == 0) map(bytes);
        if (left_ == 0 || bytes_ != bytes) return {};
        --left_;
        return {std::exchange(next_, next_ + bytes), bytes};
    }

private:
    using ranges = std::array<iovec, limits::max_slab_stacks>;

    void map(std::size_t bytes) noexcept {
        const std::size_t number = std::min(2 * mapped_, limits::max_slab_stacks);
        mapped_ = std::max(mapped_, std::size_t{1});
        if (number < 2 || !guards_share_mappings() || under_valgrind()) return;
        std::byte* const low = map_memory(number * bytes);
        if (low == nullptr) return;
        ranges at;
        for (std::size_t i = 0; i < number; ++i)
            at[i] = {low + i * bytes, limits::guard_bytes};
        if (!advise(at, number, madv_guard_install)) {
            ::munmap(low, number * bytes);
            return;
        }
        // What fails here is found out by who touches them.
        const std::size_t page = page_bytes();
        for (std::size_t i = 0; i < number; ++i)
            at[i] = {low + (i + 1) * bytes - page, page};
        advise(at, number, madv_populate_write);
        next_ = low;
        bytes_ = bytes;
        left_ = mapped_ = number;
    }

    /// One system call for all, where the kernel has it.
    static bool advise(const ranges& at, std::size_t number, int what) noexcept {
#if defined(SYS_process_madvise)
        const long done =
            ::syscall(SYS_process_madvise, pidfd_self_group, at.data(), number, what, 0);
        if (done == static_cast<long>(number * at[0].iov_len)) return true;
#endif
        return std::all_of(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(number),
                           [what](const iovec& each) {
                               return ::madvise(each.iov_base, each.iov_len, what) == 0;
                           });
    }

    std::byte* next_ = nullptr;
    std::size_t bytes_ = 0;
    std::size_t left_ = 0;
    std::size_t mapped_ = 0;  // by the last call
};
constinit stack_slab slab;
static_assert(std::is_trivially_destructible_v<stack_slab>);

std::size_t whole_pages(std::size_t usable_bytes) noexcept {
    const std::size_t page = page_bytes();
    return limits::guard_bytes + (usable_bytes + page - 1) / page * page;
}

}  // namespace

std::mutex& kept_stacks_lock() noexcept {
    return kept.lock;
}

bool guards_share_mappings() noexcept {
    return shares_mappings.load(std::memory_order_relaxed);
}

void set_guards_share_mappings(bool do_share) noexcept {
    shares_mappings.store(do_share, std::memory_order_relaxed);
}

stack_memory map_stack(std::size_t usable_bytes) {
    const std::size_t bytes = whole_pages(usable_bytes);
    const stack_memory old = take_kept(bytes);
    return made_known(old.low != nullptr ? old : map_one(bytes, usable_bytes));
}

stack_memory map_stack_of_many(std::size_t usable_bytes) {
    const std::size_t bytes = whole_pages(usable_bytes);
    stack_memory found = take_kept(bytes);
    if (found.low == nullptr) {
        const std::lock_guard hold(kept.lock);
        found = slab.take(bytes);
    }
    return made_known(found.low != nullptr ? found : map_one(bytes, usable_bytes));
}

stack_memory borrow_stack(std::byte* bottom, std::size_t usable_bytes) noexcept {
    return made_known({bottom - limits::guard_bytes, usable_bytes + limits::guard_bytes});
}

void return_stack(stack_memory borrowed) noexcept {
    forget(borrowed);
}

void unmap_stack(stack_memory memory) noexcept {
    // A hole splits a mapping in two. At the limit of vm.max_map_count the kernel refuses that:
    // then only the pages are returned, and the next stack reuses this one.
    forget(memory);
    if (::munmap(memory.low, memory.bytes) != 0) return keep(memory);
    retry_kept();
}

}  // namespace amalgam::detail
