#pragma once

namespace amalgam::detail {

/// What this_task::exit() throws.
struct exit_ult {};

}  // namespace amalgam::detail
