#pragma once

#include <exception>

#include <amalgam/core/detail/in_words.hpp>

namespace amalgam::detail {

/// Runs `work()`, which may throw anything, and passes the error text to `told(sentence)`.
template <typename Work, typename Told>
void report_failure(Work&& work, Told&& told) {
    try {
        work();
    } catch (const std::exception& why) {
        told(text_of(why));
    } catch (...) {
        told("it threw an exception not derived from std::exception");
    }
}

}  // namespace amalgam::detail
