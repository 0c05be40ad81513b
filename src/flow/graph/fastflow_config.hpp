#pragma once

#include <string_view>

#include <amalgam/flow/config.hpp>

#include "core/text/json_reader.hpp"

namespace amalgam::detail {

/// Whether the document is FastFlow's: its groups are a list.
bool is_fastflow_config(const json_reader& whole);
/// The processes that FastFlow's launcher would start: `path` is the file, which each is given.
/// Failure: throws error{invalid}.
flow_config read_fastflow_config(const json_reader& whole, std::string_view path);

}  // namespace amalgam::detail
