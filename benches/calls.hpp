#pragma once

#include <span>

#include "questions.hpp"

namespace amalgam::bench {

std::span<const question> questions_of_call_features() noexcept;
std::span<const question> questions_of_bulk() noexcept;
std::span<const question> questions_of_loop_calls() noexcept;

}  // namespace amalgam::bench
