#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <amalgam/bulk/bulk.hpp>
#include <amalgam/rpc/call_context.hpp>

#include "inject/linked_image.hpp"
#include "inject/source_core.hpp"

namespace amalgam::detail {

/// One run of injected code, as the functions that it may call see it (see image.h).
struct running_code {
    const linked_image& image;
    const source_core& onward;                  ///< By which it goes to other targets.
    std::span<const amalgam::bulk> attached{};  ///< What came along.
    bool confined = false;                      ///< In a process of its own: there is no engine.
    std::vector<std::byte> result{};

    /// In a confined process: the one for which it is there.
    static inline running_code* only_one = nullptr;

    /// That of the call that this ULT or inline handler serves; null: none runs.
    static running_code* current() noexcept {
        if (only_one != nullptr) return only_one;
        call_context* const call = call_context::try_current();
        return call == nullptr ? nullptr : static_cast<running_code*>(call->kept_by_layer());
    }
};

}  // namespace amalgam::detail
