#pragma once

#include <memory>

#include <amalgam/tasks/pool.hpp>
#include <amalgam/tasks/scheduler.hpp>

namespace amalgam {

/// Of classes that were compiled without RTTI.
std::unique_ptr<scheduler> untyped_scheduler(pool& over);
std::unique_ptr<pool> untyped_pool();

}  // namespace amalgam
