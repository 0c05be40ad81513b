#include <cstdlib>
#include <string_view>

#include <unistd.h>

#include <amalgam/core/detail/returned_child.hpp>

namespace amalgam::detail {

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
