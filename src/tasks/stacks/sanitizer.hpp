#pragma once

#include <cstddef>

// GCC defines macros, clang has __has_feature.
#if defined(__SANITIZE_ADDRESS__)
#define AMALGAM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AMALGAM_ASAN 1
#endif
#endif
#if defined(AMALGAM_MODEL_CHECK)
// Instrumented, but not by ThreadSanitizer: see tests/model_check.
#elif defined(__SANITIZE_THREAD__)
#define AMALGAM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AMALGAM_TSAN 1
#endif
#endif

#if defined(AMALGAM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#if defined(AMALGAM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace amalgam::detail {

#if defined(AMALGAM_ASAN) || defined(AMALGAM_TSAN)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

/// What the sanitizers must know about a context; empty in plain builds.
struct sanitizer_context {
#if defined(AMALGAM_ASAN)
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    // Kept, not released at a ULT's end: the outermost frames of a pooled stack stay alive, and may
    // be on the fake stack.
    void* fake_stack = nullptr;
#endif
#if defined(AMALGAM_TSAN)
    void* fiber = nullptr;
#endif

    /// A ULT's stack was mapped.
    void create([[maybe_unused]] void* low, [[maybe_unused]] std::size_t size) noexcept {
#if defined(AMALGAM_ASAN)
        bottom = low;
        bytes = size;
#endif
#if defined(AMALGAM_TSAN)
        fiber = __tsan_create_fiber(0);
#endif
    }
    /// It will be unmapped; the redzones of its last frames must not outlive it.
    void destroy() noexcept {
#if defined(AMALGAM_ASAN)
        __asan_unpoison_memory_region(bottom, bytes);
#endif
#if defined(AMALGAM_TSAN)
        __tsan_destroy_fiber(fiber);
#endif
    }
    /// It stays mapped forever and is never switched to again: what it refers to is not a leak.
    void keep() noexcept {
#if defined(AMALGAM_ASAN)
        __lsan_register_root_region(bottom, bytes);
#endif
    }
    /// The calling thread's own stack becomes a context. ASan learns its bounds at the first switch
    /// away.
    void adopt_thread() noexcept {
#if defined(AMALGAM_TSAN)
        fiber = __tsan_get_current_fiber();
#endif
    }

    // Always inlined: on return, the sanitizers assume that we are already on the other stack.
    [[gnu::always_inline]] void before_switch_to(
        [[maybe_unused]] const sanitizer_context& to) noexcept {
#if defined(AMALGAM_ASAN)
        __sanitizer_start_switch_fiber(&fake_stack, to.bottom, to.bytes);
#endif
#if defined(AMALGAM_TSAN)
        __tsan_switch_to_fiber(to.fiber, 0);
#endif
    }
    [[gnu::always_inline]] void after_switch_from(
        [[maybe_unused]] sanitizer_context& from) noexcept {
#if defined(AMALGAM_ASAN)
        __sanitizer_finish_switch_fiber(fake_stack, &from.bottom, &from.bytes);
#endif
    }
};

}  // namespace amalgam::detail
