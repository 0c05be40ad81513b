#pragma once

// std::function without the rest of <functional>, whose searchers bring <unordered_map> and the
// algorithms: libstdc++ has it in a header of its own.
#include <new>

#if __has_include(<bits/std_function.h>)
#include <bits/std_function.h>
#else
#include <functional>
#endif
