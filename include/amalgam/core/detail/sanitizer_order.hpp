#pragma once

#include <cstdint>

// GCC defines a macro, clang has __has_feature.
#if defined(__SANITIZE_THREAD__)
#define AMALGAM_TSAN_ORDER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AMALGAM_TSAN_ORDER 1
#endif
#endif
#if defined(AMALGAM_TSAN_ORDER)
#include <sanitizer/tsan_interface.h>
#endif

namespace amalgam::detail {

/// Tells ThreadSanitizer that what was done before a word was stored is done when it is loaded.
/// Where both ends of a ring are in one process, each has mapped it for itself. ThreadSanitizer
/// knows words by their address, so to it the store and the load are of two words. Nothing in plain
/// builds.
class sanitizer_order {
public:
    /// `shared` is known to both ends, and to hardly any others.
    explicit sanitizer_order([[maybe_unused]] std::uint64_t shared) noexcept {
#if defined(AMALGAM_TSAN_ORDER)
        at_ = &stand_ins_[shared % sizeof stand_ins_];
#endif
    }

    void before_store() const noexcept {
#if defined(AMALGAM_TSAN_ORDER)
        __tsan_release(at_);
#endif
    }
    void after_load() const noexcept {
#if defined(AMALGAM_TSAN_ORDER)
        __tsan_acquire(at_);
#endif
    }

private:
#if defined(AMALGAM_TSAN_ORDER)
    inline static char stand_ins_[4096] = {};
    char* at_ = nullptr;
#endif
};

}  // namespace amalgam::detail
