#pragma once

#include <type_traits>
#include <utility>

#include <amalgam/core/detail/memory.hpp>

namespace amalgam {

namespace detail {
/// Its address stands for T, also in programs without RTTI. Not constant: linkers may merge
/// constants.
template <typename T>
inline char type_mark = 0;
}  // namespace detail

/// An object of the user's that serialize() functions see, as `archive.context<T>()`: a table of
/// names, a pool of memory, a key. They see the nearest one that is given: bound_procedure's
/// with_context(), then calling_options::context or, for a handler, procedure_options::context,
/// then engine_options::context. Each end sees its own.
///
/// Owner:   shares the object.
/// Threads: like a plain value. Serialization runs wherever calls are made and served, so the
///          object must allow use by several threads at once if the engine has more than one.
class archive_context {
public:
    archive_context() = default;
    template <typename T>
    archive_context(std::shared_ptr<T> object) noexcept
        : type_(object == nullptr ? nullptr : &detail::type_mark<std::remove_const_t<T>>),
          is_const_(std::is_const_v<T>),
          object_(std::const_pointer_cast<std::remove_const_t<T>>(std::move(object))) {}

    /// Whether there is an object.
    explicit operator bool() const noexcept { return type_ != nullptr; }
    /// The object, if it is a `T`; else null. The type must be the one of the shared_ptr given; of
    /// a const object only `const T` is. Shared objects with hidden symbols each have types of
    /// their own.
    template <typename T>
    T* get() const noexcept {
        const bool is_one = type_ == &detail::type_mark<std::remove_const_t<T>>;
        if (!is_one || (is_const_ && !std::is_const_v<T>)) return nullptr;
        return static_cast<T*>(object_.get());
    }

private:
    const char* type_ = nullptr;
    bool is_const_ = false;
    std::shared_ptr<void> object_;
};

namespace detail {
struct origin;
/// The context of the archive's message, else that of its engine; empty for an archive of none.
const archive_context& context_of(const origin* between) noexcept;
}  // namespace detail

}  // namespace amalgam
