#pragma once

namespace amalgam::detail {

/// Thrown by this_task::exit().
struct exit_ult {};

}  // namespace amalgam::detail
