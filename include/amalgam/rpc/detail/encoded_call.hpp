#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/bytes.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam::detail {

class engine_core;

/// Calls a procedure whose types only its caller and its handler know: arguments and result are in
/// the native encoding. Parks the ULT or thread. Throws what calls throw.
std::vector<std::byte> call_encoded(engine_core& core, const peer& there, std::string_view name,
                                    std::string signature, const_bytes arguments);

}  // namespace amalgam::detail
