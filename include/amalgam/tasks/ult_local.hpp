#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace amalgam {

namespace detail {

/// Unique in the process, never used again.
std::uint64_t new_local_key() noexcept;
/// The running ULT's value, or the thread's outside of ULTs; null: none yet.
void* find_local(std::uint64_t key) noexcept;
/// `destroy` runs when the ULT or thread ends. Throws std::bad_alloc.
void add_local(std::uint64_t key, void* value, void (*destroy)(void*) noexcept);

}  // namespace detail

/// A variable of which every ULT has one of its own, made when it first asks for it and destroyed
/// when it ends, wherever it ran. Plain threads have one each too; tasklets, timer callbacks and
/// pollers see that of their stream's thread.
///
///     ult_local<arena> scratch;
///     post(stream, [&] { scratch->allocate(100); });
///
/// Owner:   each ULT owns its value. The ult_local may end before its values do.
/// Threads: any.
/// Failure: what making the value throws, and std::bad_alloc, from the first use.
/// Cost:    a look through the ULT's few values; the first use allocates.
template <typename T>
class ult_local {
public:
    /// Values begin as T().
    ult_local() : ult_local([] { return T(); }) {}
    /// Values begin as what `first()` returns.
    explicit ult_local(std::function<T()> first)
        : key_(detail::new_local_key()), first_(std::move(first)) {}
    ult_local(const ult_local&) = delete;
    ult_local& operator=(const ult_local&) = delete;

    /// Its address stays the same for the whole life of the ULT.
    T& get() {
        if (void* const known = detail::find_local(key_)) return *static_cast<T*>(known);
        auto made = std::make_unique<T>(first_());
        detail::add_local(key_, made.get(),
                          [](void* value) noexcept { delete static_cast<T*>(value); });
        return *made.release();
    }
    T& operator*() { return get(); }
    T* operator->() { return &get(); }

private:
    const std::uint64_t key_;
    const std::function<T()> first_;
};

}  // namespace amalgam
