#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <amalgam/core/result.hpp>
#include <amalgam/flow/config.hpp>

#include "flow/launcher/control.hpp"

namespace amalgam::detail {

/// What a rank tells the others through PMIx: which process it is, and a control message.
struct rank_message {
    std::size_t group = 0;  ///< Its index in the config.
    std::size_t replica = 0;
    control_message said;
};

std::string encode_rank_message(std::string_view group, std::size_t replica,
                                const control_message& said);
/// Failure: `mismatch` for what is no message of a process of `config`.
result<rank_message> decode_rank_message(const std::string& text, const flow_config& config);

}  // namespace amalgam::detail
