#pragma once

#include <exception>

#include <amalgam/core/result.hpp>

namespace amalgam::detail {

/// A failure with the text from `sentence()`, for code that must not throw. If memory runs out, the
/// failure has only its code.
template <typename Sentence>
failure in_words(status what, Sentence sentence) noexcept {
    failure why{what, {}};
    try {
        why.sentence = sentence();
    } catch (...) {
        why.sentence.clear();
    }
    return why;
}

inline failure in_words(status what, const char* sentence) noexcept {
    return in_words(what, [sentence] { return sentence; });
}

/// what() of a user's exception may be null.
inline const char* text_of(const std::exception& thrown) noexcept {
    const char* text = thrown.what();
    return text != nullptr ? text : "an exception without a message";
}

}  // namespace amalgam::detail
