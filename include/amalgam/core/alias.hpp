#pragma once

namespace amalgam {}

/// The alias in guides and examples. The header of each layer brings it, and amalgam.hpp.
namespace am = amalgam;
