#pragma once

namespace amalgam::detail {

class ult_core;

#if defined(AMALGAM_CHECK_HELD_MUTEXES)

/// While one lives, somebody is switched away from: the mutexes of the system that it holds are
/// counted apart from those of whoever runs on its thread meanwhile. Whether a ULT holds some is
/// said in the log, once for each place: the next ULT that locks one blocks its whole stream, and
/// the holder may need that stream to go on.
class held_mutexes_aside {
public:
    /// The stream's loop: whoever drives a stream may hold what it likes.
    held_mutexes_aside() noexcept;
    /// `how`: "yield", "wait", "join".
    held_mutexes_aside(const ult_core& who, const char* how) noexcept;
    ~held_mutexes_aside();
    held_mutexes_aside(const held_mutexes_aside&) = delete;
    held_mutexes_aside& operator=(const held_mutexes_aside&) = delete;

private:
    int count_;
};

/// A ULT has ended: what it still holds, nobody will unlock.
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
