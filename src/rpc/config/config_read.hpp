#pragma once

#include <amalgam/rpc/engine_streams.hpp>

#include "core/text/json_reader.hpp"

namespace amalgam::detail {

/// One of an engine's streams, from an object.
stream_options read_stream(const json_reader& from);

}  // namespace amalgam::detail
