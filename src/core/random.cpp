#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include <sys/random.h>

#include <amalgam/core/detail/forks.hpp>
#include <amalgam/core/detail/thread_owned.hpp>
#include <amalgam/core/random.hpp>

namespace amalgam {
namespace {

struct reserve {
    std::array<std::uint64_t, 64> words;
    std::size_t left = 0;
    unsigned filled_at_fork = 0;  // A child discards inherited numbers.

    void fill() noexcept {
        detail::count_forks();
        filled_at_fork = detail::forks_so_far();
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
    if (r.left == 0 || r.filled_at_fork != detail::forks_so_far()) r.fill();
    // The number is erased here: a later memory leak does not reveal it.
    return std::exchange(r.words[--r.left], 0);
}

std::uint64_t random_nonzero_u64() noexcept {
    for (;;) {
        if (std::uint64_t bits = random_u64(); bits != 0) return bits;
    }
}

}  // namespace amalgam
