#pragma once

#include <amalgam/core/detail/memory.hpp>

namespace amalgam::detail {

class engine_core;

/// Ends an engine as its destructor does, wherever that is, but leaves the object: whoever still
/// uses it finds a stopped engine. Its destructor then only frees it, and waits for nothing.
///
/// Where the caller cannot wait (in call_then() or an inline handler of another engine), the
/// engine's stream does it, after all that is handed over to it by then, and `keeps`, which holds
/// the object, is kept until then.
///
/// Call it once, by the engine's owner.
void end_early(engine_core& core, std::shared_ptr<void> keeps) noexcept;

}  // namespace amalgam::detail
