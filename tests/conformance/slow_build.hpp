#pragma once

namespace amalgam::conformance {

/// True under a sanitizer, and where the processor is emulated: tests then do less.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(AMALGAM_EMULATED)
inline constexpr bool slow_build = true;
#elif defined(__has_feature)
inline constexpr bool slow_build =
    __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
inline constexpr bool slow_build = false;
#endif

}  // namespace amalgam::conformance
