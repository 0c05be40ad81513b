#pragma once

#include <amalgam/core/bytes.hpp>

#include "fabric/frames/frame.hpp"

namespace amalgam::detail {

/// Receives the frames that a parser finds in a stream of bytes.
class frame_handler {
public:
    virtual delivery on_frame(const frame_header&, const_bytes payload) noexcept = 0;
    /// Destination for the rest of a frame of which `prefix` has arrived, as
    /// framed_port::begin_placement(); nullptr: malformed, or the link was ended.
    virtual placement* on_large(const frame_header&, const_bytes prefix) noexcept = 0;
    /// The rest is there, as framed_port::end_placement().
    virtual delivery on_large_end() noexcept = 0;
    /// As framed_port::extend_placement(): the placement is full, but its frame continues. False:
    /// the link was ended. Called only for ports that grow_placements().
    virtual bool on_large_full() noexcept { return false; }

protected:
    ~frame_handler() = default;
};

}  // namespace amalgam::detail
