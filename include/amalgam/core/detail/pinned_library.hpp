#pragma once

namespace amalgam::detail {

/// From now on the shared object that contains this is never unloaded, whatever dlclose() says: our
/// signal handlers and threads may still run in it. No effect in a program.
///
/// Takes the loader's lock, so do not call it from a thread that a library's initialization waits
/// for.
void pin_library() noexcept;

}  // namespace amalgam::detail
