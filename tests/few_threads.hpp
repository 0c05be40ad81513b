#pragma once

#include <atomic>
#include <cerrno>

#include <dlfcn.h>
#include <pthread.h>

#include "tasks/stacks/sanitizer.hpp"

namespace amalgam {

/// How many threads this program can still start; negative: no limit.
inline std::atomic<int> spare_threads{-1};

/// While one lives, this program can start so many threads more. Not by RLIMIT_NPROC, which counts
/// what other programs of the same user start, and does not hold for root. A sanitizer has its own
/// pthread_create(): in such builds there is no limit.
class few_threads {
public:
    explicit few_threads(int spare) { spare_threads = spare; }
    few_threads(const few_threads&) = delete;
    ~few_threads() { spare_threads = -1; }
};

}  // namespace amalgam

#if !defined(AMALGAM_ASAN) && !defined(AMALGAM_TSAN)
/// Instead of the C library's: so one source of a program may include this.
extern "C" [[gnu::visibility("default")]] int pthread_create(pthread_t* thread,
                                                             const pthread_attr_t* how,
                                                             void* (*body)(void*),
                                                             void* argument) noexcept {
    using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
    static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
    int spare = amalgam::spare_threads;
    while (spare > 0 && !amalgam::spare_threads.compare_exchange_weak(spare, spare - 1)) {
    }
    return spare == 0 ? EAGAIN : real(thread, how, body, argument);
}
#endif
