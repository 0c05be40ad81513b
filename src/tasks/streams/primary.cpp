#include "tasks/streams/primary.hpp"

#include <pthread.h>

#include "tasks/streams/stream.hpp"

namespace amalgam::detail {

namespace {
constexpr std::size_t loop_stack_bytes = 256 * 1024;  // for tasklets, timers and pollers
}

void bind_to_core(int which) noexcept {
    if (which < 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(which, &one);
    ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
}

primary::primary(dispatcher& runs, stream_loop& loop, const std::string& name, int core)
    : main_(ult_core::of_thread(), name), runs_(runs), loop_stack_(map_stack(loop_stack_bytes)) {
    ::pthread_getaffinity_np(::pthread_self(), sizeof cores_before_, &cores_before_);
    bind_to_core(core);
    turn_.emplace(loop);
    runs_.become_ult(main_, loop_stack_, [](stream& of) { of.loop().turn_once(); });
}

primary::~primary() {
    runs_.end_as_ult();
    turn_.reset();
    unmap_stack(loop_stack_);
    ::pthread_setaffinity_np(::pthread_self(), sizeof cores_before_, &cores_before_);
}

}  // namespace amalgam::detail
