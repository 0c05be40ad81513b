#pragma once

/// Resources found by attributes, and messages to them. All public headers of the layer, and the
/// alias `am`.
#include <amalgam/core/alias.hpp>
#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/directory_roles.hpp>
#include <amalgam/directory/directory_server.hpp>
#include <amalgam/directory/found_resource.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/directory/resource.hpp>
#include <amalgam/directory/resource_id.hpp>
#include <amalgam/directory/resource_message.hpp>
#include <amalgam/directory/resource_search.hpp>
#include <amalgam/directory/resource_watch.hpp>
