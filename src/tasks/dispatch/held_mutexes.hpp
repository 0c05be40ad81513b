#pragma once

namespace amalgam::detail {

class ult_core;

#if defined(AMALGAM_CHECK_HELD_MUTEXES)

/// While it exists, a ULT or stream loop is switched out: the system mutexes that it holds are
/// counted apart from those of whatever runs on its thread meanwhile. If a ULT holds some, that is
/// logged once per place: the next ULT that locks one blocks its whole stream, and the holder may
/// need that stream to continue.
class held_mutexes_aside {
public:
    /// For the stream's loop: whoever drives a stream may hold any mutexes.
    held_mutexes_aside() noexcept;
    /// `how`: "yield", "wait", "join".
    held_mutexes_aside(const ult_core& who, const char* how) noexcept;
    ~held_mutexes_aside();
    held_mutexes_aside(const held_mutexes_aside&) = delete;
    held_mutexes_aside& operator=(const held_mutexes_aside&) = delete;

private:
    int count_;
};

/// A ULT has ended: mutexes it still holds will never be unlocked.
void check_held_mutexes_at_end(const ult_core& who) noexcept;

#else

class held_mutexes_aside {
public:
    held_mutexes_aside() noexcept {}
    held_mutexes_aside(const ult_core&, const char*) noexcept {}
};

inline void check_held_mutexes_at_end(const ult_core&) noexcept {}

#endif

}  // namespace amalgam::detail
