#pragma once

#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

/// Gives names to streams that have none, and the second stream to an engine that needs one.
void fill_in(engine_options& options);

/// Precondition: filled in.
/// Failure: throws error{invalid} at the first thing that cannot be, with the path of the key as
///          it is in the JSON, what was expected, and an example.
void check(const engine_options& options);

/// own_stream, and yet the first stream runs handlers: the sentence for that; else empty.
std::string handlers_on_first(const engine_options& options, progress_by who);

}  // namespace amalgam::detail
