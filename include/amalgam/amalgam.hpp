#pragma once

#include <amalgam/rpc/engine.hpp>

/// `am` is the name that examples use.
namespace am = amalgam;
