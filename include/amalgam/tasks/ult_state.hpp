#pragma once

#include <cstdint>

namespace amalgam {

/// What a ULT is doing.
enum class ult_state : std::uint8_t {
    ready,    ///< In a pool, or about to be.
    running,  ///< On a stream right now.
    parked,   ///< Waiting to be unparked.
    created,  ///< Ready, and has not begun; list_ults() reports it as ready.
    ended     ///< Its body has returned or thrown, or its pool was destroyed.
};

/// For example "parked"; as printed by print_ults().
const char* name(ult_state state) noexcept;

}  // namespace amalgam
