#pragma once

#include <optional>
#include <string>
#include <utility>

#include <amalgam/core/status.hpp>

namespace amalgam {

/// Why an operation that returns a `result` failed: status and sentence.
struct failure {
    status what;           ///< Its code tells what to do next.
    std::string sentence;  ///< Says why, for people.
};

/// A value, or the failure that prevented it. Returned by the non-throwing twins (`try_…`).
///
/// Threads: like a plain value.
/// Failure: value() on a failed result throws the corresponding amalgam::error.
template <typename T>
class [[nodiscard]] result {
public:
    result(T value) : value_(std::move(value)) {}
    result(failure why) : why_(std::move(why)) {}
    result(errc code, std::string sentence) : why_{status{code}, std::move(sentence)} {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    bool ok() const noexcept { return value_.has_value(); }
    status code() const noexcept { return why_.what; }  ///< ok if it holds a value.
    const std::string& sentence() const noexcept { return why_.sentence; }  ///< Empty if ok.
    /// Code and sentence in one; its code is `ok` when there is no failure.
    const failure& why() const noexcept { return why_; }

    T& value() & {
        check();
        return *value_;
    }
    const T& value() const& {
        check();
        return *value_;
    }
    T&& value() && {
        check();
        return std::move(*value_);
    }
    T& operator*() & noexcept { return *value_; }
    const T& operator*() const& noexcept { return *value_; }
    T&& operator*() && noexcept { return std::move(*value_); }
    T* operator->() noexcept { return &*value_; }
    const T* operator->() const noexcept { return &*value_; }

private:
    void check() const {
        if (!value_) throw error(why_.what, why_.sentence);
    }
    std::optional<T> value_;
    failure why_;
};

/// Success or failure of an operation that returns nothing.
template <>
class [[nodiscard]] result<void> {
public:
    result() = default;
    result(failure why) : why_(std::move(why)) {}
    result(errc code, std::string sentence) : why_{status{code}, std::move(sentence)} {}

    explicit operator bool() const noexcept { return ok(); }
    bool ok() const noexcept { return why_.what.ok(); }
    status code() const noexcept { return why_.what; }
    const std::string& sentence() const noexcept { return why_.sentence; }
    /// Code and sentence in one; its code is `ok` when there is no failure.
    const failure& why() const noexcept { return why_; }
    void value() const {
        if (!ok()) throw error(why_.what, why_.sentence);
    }

private:
    failure why_;
};

}  // namespace amalgam
