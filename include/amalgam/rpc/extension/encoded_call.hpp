#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

class engine_core;

/// Calls a procedure whose types are known only to its caller and its handler. Arguments and result
/// use the native encoding. Parks the ULT or thread. Throws what calls throw.
std::vector<std::byte> call_encoded(engine_core& core, const peer& there, std::string_view name,
                                    std::string signature, const_bytes arguments);

}  // namespace amalgam::detail
