#pragma once

namespace amalgam::detail {

class engine_core;

/// Ends an engine as its destructor does, wherever that is, but leaves the object: whoever still
/// uses it finds a stopped engine. Its destructor then only frees it, and waits for nothing.
///
/// Call it once, by the engine's owner.
void end_early(engine_core& core) noexcept;

}  // namespace amalgam::detail
