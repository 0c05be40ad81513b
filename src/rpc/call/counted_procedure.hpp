#pragma once

#include <cstdint>
#include <string>

#include <amalgam/rpc/detail/call.hpp>

#include "rpc/context/stream_counts.hpp"

namespace amalgam::detail {

/// A remote_procedure with what its calls moved. All of them are, as remote_procedures makes them.
///
/// Threads: the counts are the engine's stream's; see stream_counts.
struct counted_procedure : remote_procedure {
    /// Of what the handler of this procedure reads from its caller; else empty.
    std::string read_by;
    mutable std::uint64_t sent_bytes = 0;      ///< Of arguments, also of those sent again.
    mutable std::uint64_t received_bytes = 0;  ///< Of results, without values of streams.
    mutable stream_counts sent_values;
    mutable stream_counts received_values;
};

inline const counted_procedure& counted(const remote_procedure& what) noexcept {
    return static_cast<const counted_procedure&>(what);
}

}  // namespace amalgam::detail
