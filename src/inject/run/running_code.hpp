#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "inject/link/linked_image.hpp"
#include "inject/source/core.hpp"

namespace amalgam::detail {

/// One run of injected code, as seen by the functions it may call (see image.h).
struct running_code {
    const linked_image& image;
    const source_core& onward;                  ///< For forwarding to other targets.
    std::span<const amalgam::bulk> attached{};  ///< Attached memory.
    bool confined = false;                      ///< In a process of its own, without an engine.
    std::vector<std::byte> result{};

    /// In a confined process: its only run.
    static inline running_code* only_one = nullptr;

    /// The run served by this ULT or inline handler; null if none.
    static running_code* current() noexcept {
        if (only_one != nullptr) return only_one;
        call_context* const call = call_context::try_current();
        return call == nullptr ? nullptr : static_cast<running_code*>(call->kept_by_layer());
    }
};

}  // namespace amalgam::detail
