#pragma once

#include <string>
#include <string_view>

#include <amalgam/rpc/engine_statistics.hpp>

namespace amalgam::detail {

/// The file with the names of this host, process and engine in place of {host}, {pid} and {name}. A
/// slash in the engine's name is "_" there.
std::string file_of_this_process(std::string_view file, std::string_view engine);

/// Writes the text and a line end to that file, whole or not at all: the one that is there, or that
/// a link there leads to, stays until the new one is complete. Only this user may read it.
/// Failure: throws error{invalid}, with a sentence: also if something else is there than a file, or
///          a link of another user in a folder that all may write to.
void write_statistics_file(const std::string& file, std::string_view text);

}  // namespace amalgam::detail
