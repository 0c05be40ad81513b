#pragma once

namespace amalgam::detail {

/// The shared object that this is linked into is never unloaded from now on, whatever dlclose()
/// says: signal handlers and threads of ours may run on in it. Nothing in a program.
///
/// Not from a thread that a library's initialization waits for: it takes the loader's lock.
void pin_library() noexcept;

}  // namespace amalgam::detail
