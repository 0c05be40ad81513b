#include <atomic>
#include <cstdlib>
#include <new>
#include <string_view>

#include <pthread.h>
#include <unistd.h>

#include <amalgam/core/detail/returned_child.hpp>

namespace amalgam::detail {

namespace {
constinit std::atomic<unsigned> forks{0};
}

void count_forks() {
    static const bool counting = [] {
        const auto in_child = [] { forks.fetch_add(1, std::memory_order_relaxed); };
        if (::pthread_atfork(nullptr, nullptr, in_child) != 0) throw std::bad_alloc();
        return true;
    }();
    static_cast<void>(counting);
}

unsigned forks_so_far() noexcept {
    return forks.load(std::memory_order_relaxed);
}

void end_returned_child() noexcept {
    constexpr std::string_view why =
        "amalgam: terminating a child of fork() that returned from a function called by a thread "
        "of the library (a ULT, tasklet, coroutine, timer, poller, scheduler or pool; a handler, "
        "continuation, interceptor or on_progress; a receiver of broadcasts): the child has none "
        "of its parent's threads; call exec() or _exit() in the child before that function "
        "returns\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, why.data(), why.size());
    ::_exit(EXIT_FAILURE);
}

}  // namespace amalgam::detail
