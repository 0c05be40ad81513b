#pragma once

#include "stats/number_source.hpp"

namespace amalgam::tool {

/// Shows the numbers on the terminal until the user quits. `seconds`: between two rounds.
/// Failure: throws error{unsupported} if the terminal cannot be used.
void show_on_screen(number_source& from, double seconds);

}  // namespace amalgam::tool
