#pragma once

#include <amalgam/rpc/engine.hpp>

namespace amalgam::detail {

/// Names unnamed streams, and adds a second stream if the engine needs one.
void fill_in(engine_options& options);

/// Precondition: fill_in() was called.
/// Failure: throws error{invalid} at the first invalid option, with its JSON path, what was
///          expected, and an example.
void check(const engine_options& options);

/// The error if the first stream runs handlers although own_stream is set; else empty.
std::string handlers_on_first(const engine_options& options, progress_by who);

}  // namespace amalgam::detail
