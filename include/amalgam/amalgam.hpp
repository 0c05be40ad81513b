#pragma once

/// All layers. A program that uses one compiles faster with the header of that one.
#include <amalgam/bulk.hpp>
#include <amalgam/core.hpp>
#include <amalgam/directory.hpp>
#include <amalgam/fabric.hpp>
#include <amalgam/flow.hpp>
#include <amalgam/inject.hpp>
#include <amalgam/rpc.hpp>
#include <amalgam/tasks.hpp>
