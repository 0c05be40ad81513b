#pragma once

#include <version>

#include <cxxabi.h>

namespace ff::detail {

/// What unwinds a thread that called pthread_exit() or was cancelled. Who catches it throws it on.
/// With libc++ only destructors run then, no handler, not even catch (...): nothing is of this
/// type, and a graph is not told that the thread of one of its nodes was made to exit.
#ifdef _LIBCPP_VERSION
struct forced_unwind {};
#else
using forced_unwind = abi::__forced_unwind;
#endif

}  // namespace ff::detail
