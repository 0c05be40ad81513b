#pragma once

#include <exception>

namespace amalgam::detail {

/// Runs `work()`, which may throw anything; then `told(sentence)`.
template <typename Work, typename Told>
void tell_failure(Work&& work, Told&& told) {
    try {
        work();
    } catch (const std::exception& why) {
        told(why.what());
    } catch (...) {
        told("it threw what is no std::exception");
    }
}

}  // namespace amalgam::detail
