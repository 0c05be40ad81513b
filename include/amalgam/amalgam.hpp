#pragma once

#include <amalgam/rpc/engine.hpp>

/// The alias used in examples.
namespace am = amalgam;
