#pragma once

#include <cstddef>
#include <memory>

#include <amalgam/core/bytes.hpp>

namespace amalgam::detail {

class engine_core;

/// Memory for a block of a cache, and who frees it.
struct cache_memory {
    std::shared_ptr<void> holder;
    mutable_bytes bytes;
};

/// The one place that says what caches are made of.
/// Failure: throws std::bad_alloc or what the port says.
cache_memory allocate_cache_memory(engine_core& core, std::size_t bytes);

}  // namespace amalgam::detail
