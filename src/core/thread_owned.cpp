#include <cxxabi.h>

#include <amalgam/core/detail/thread_owned.hpp>

// Of the program or shared object that this is linked into.
extern "C" [[gnu::visibility("hidden")]] void* __dso_handle;

namespace amalgam::detail {

bool at_thread_end(void (*what)(void*), void* with) noexcept {
    return abi::__cxa_thread_atexit(what, with, &__dso_handle) == 0;
}

}  // namespace amalgam::detail
