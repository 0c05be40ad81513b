#pragma once

/// Code sent to where the data is. All public headers of the layer, and the alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/inject/build_image.hpp>
#include <amalgam/inject/code_image.hpp>
#include <amalgam/inject/image_manifest.hpp>
#include <amalgam/inject/image_revocations.hpp>
#include <amalgam/inject/injected.hpp>
#include <amalgam/inject/injection_policy.hpp>
#include <amalgam/inject/injection_ring.hpp>
#include <amalgam/inject/injection_target.hpp>
#include <amalgam/inject/injector.hpp>
