#pragma once

#include <gtest/gtest.h>

#include <amalgam/core/status.hpp>

namespace amalgam {

/// The code of the error thrown by `call()`, ok if nothing was thrown.
template <typename Call>
errc code_of(Call call) {
    try {
        call();
    } catch (const error& why) {
        return why.code().code;
    }
    return errc::ok;
}

/// The error thrown by `call()`; the test fails if nothing was thrown.
template <typename Call>
error error_of(Call call) {
    try {
        call();
    } catch (const error& why) {
        return why;
    }
    ADD_FAILURE() << "nothing was thrown";
    return error(errc::ok, "");
}

}  // namespace amalgam
