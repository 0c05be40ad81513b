#pragma once

/// Memory that peers read and write. All public headers of the layer, and the alias `am`.
#include <amalgam/bulk/bulk.hpp>
#include <amalgam/bulk/bulk_cache.hpp>
#include <amalgam/bulk/expose.hpp>
#include <amalgam/bulk/memory_kind.hpp>
#include <amalgam/bulk/remote_copy.hpp>
#include <amalgam/bulk/segments.hpp>
#include <amalgam/bulk/transfers.hpp>
#include <amalgam/core/alias.hpp>
