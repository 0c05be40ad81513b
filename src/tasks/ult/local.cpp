#include <amalgam/tasks/extension/local.hpp>

#include "tasks/streams/stream.hpp"

namespace amalgam::detail {

namespace {
[[gnu::tls_model("initial-exec")]] constinit thread_local void* of_thread = nullptr;
}  // namespace

// Not inlined: see stream::current().
[[gnu::noinline]] void*& task_local() noexcept {
    asm volatile("");
    stream* const here = stream::current();
    if (here == nullptr || here->running() == nullptr) return of_thread;
    return here->running()->local;
}

}  // namespace amalgam::detail
