#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <pthread.h>
#include <sys/random.h>

#include <amalgam/core/detail/thread_owned.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam {
namespace {

// Counts forks, so that a child discards inherited numbers.
std::atomic<std::uint32_t> fork_count{0};

bool watch_forks() noexcept {
    auto count = [] { fork_count.fetch_add(1, std::memory_order_relaxed); };
    if (pthread_atfork(nullptr, nullptr, count) != 0) std::abort();
    return true;
}

struct reserve {
    std::array<std::uint64_t, 64> words;
    std::size_t left = 0;
    std::uint32_t filled_at_fork = 0;

    void fill() noexcept {
        static const bool watching = watch_forks();
        static_cast<void>(watching);
        filled_at_fork = fork_count.load(std::memory_order_relaxed);
        auto* to = reinterpret_cast<char*>(words.data());
        std::size_t need = sizeof words;
        while (need > 0) {
            ssize_t got = ::getrandom(to, need, 0);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) std::abort();
            to += got;
            need -= static_cast<std::size_t>(got);
        }
        left = words.size();
    }
};

}  // namespace

std::uint64_t random_u64() noexcept {
    reserve* const own = detail::thread_owned<reserve>::get();
    if (own == nullptr) {  // out of memory, or the thread is ending
        reserve one;
        one.fill();
        return one.words[0];
    }
    reserve& r = *own;
    if (r.left == 0 || r.filled_at_fork != fork_count.load(std::memory_order_relaxed)) r.fill();
    // The number is erased here: a later memory leak does not reveal it.
    return std::exchange(r.words[--r.left], 0);
}

std::uint64_t random_nonzero_u64() noexcept {
    for (;;) {
        if (std::uint64_t bits = random_u64(); bits != 0) return bits;
    }
}

}  // namespace amalgam
