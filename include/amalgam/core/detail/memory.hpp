#pragma once

// std::unique_ptr, std::shared_ptr and std::weak_ptr. libstdc++ has them in a header of their own,
// without the uninitialized and parallel algorithms of <memory>.
#if __has_include(<bits/shared_ptr.h>)
#include <bits/shared_ptr.h>
#else
#include <memory>
#endif
