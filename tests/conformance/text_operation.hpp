#pragma once

#include <cstddef>
#include <string>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/fabric/completion.hpp>

namespace amalgam::conformance {

/// An operation with the text its port borrows, and how it ended.
struct text_operation final : completion {
    text_operation() : completion(&ran) {}
    static void ran(completion& self, status what, std::size_t) noexcept {
        auto& op = static_cast<text_operation&>(self);
        op.over = true;
        op.code = what.code;
    }
    bool over = false;
    errc code = errc::ok;
    std::string text;
    const_bytes bytes;  ///< Of the text, once set.
};

}  // namespace amalgam::conformance
