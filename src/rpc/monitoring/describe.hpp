#pragma once

namespace amalgam {
class engine;
}

namespace amalgam::detail {

/// Defines the procedures by which peers ask.
void define_descriptions(engine& here);

}  // namespace amalgam::detail
