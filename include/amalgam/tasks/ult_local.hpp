#pragma once

#include <cstdint>
#include <utility>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/tasks/ult_ref.hpp>

namespace amalgam {

namespace detail {

/// Unique in the process; never reused.
std::uint64_t new_local_key() noexcept;
/// The value of the running ULT, or of the thread outside a ULT. Null: not created yet.
void* find_local(std::uint64_t key) noexcept;
/// `destroy` runs when the ULT or thread ends. Throws std::bad_alloc.
void add_local(std::uint64_t key, void* value, void (*destroy)(void*) noexcept);

/// The same for another ULT, which is kept from running meanwhile. Both throw error{invalid} if it
/// runs or has ended.
void* find_local_of(const ult_ref& of, std::uint64_t key);
void add_local_of(const ult_ref& of, std::uint64_t key, void* value,
                  void (*destroy)(void*) noexcept);
ult_ref ref_of(const ult& of);

}  // namespace detail

/// A variable with one value per ULT, created on first use and destroyed when the ULT ends, on
/// whatever stream it ran. Each plain thread also has one; tasklets, timer callbacks and pollers
/// see the value of their stream's thread.
///
///     ult_local<arena> scratch;
///     post(stream, [&] { scratch->allocate(100); });
///
/// Owner:   each ULT owns its value. The ult_local may be destroyed before its values.
/// Threads: any.
/// Failure: the first use throws what creating the value throws, or std::bad_alloc.
/// Cost:    a search through the ULT's few values; the first use allocates.
template <typename T>
class ult_local {
public:
    /// Initializes values with T().
    ult_local() : ult_local([] { return T(); }) {}
    /// Initializes values with the result of `first()`.
    explicit ult_local(std::function<T()> first)
        : key_(detail::new_local_key()), first_(std::move(first)) {}
    ult_local(const ult_local&) = delete;
    ult_local& operator=(const ult_local&) = delete;

    /// The address stays the same for the life of the ULT.
    T& get() {
        if (void* const known = detail::find_local(key_)) return *static_cast<T*>(known);
        auto made = std::make_unique<T>(first_());
        detail::add_local(key_, made.get(), &destroy);
        return *made.release();
    }
    /// The value of another ULT, created here on first use. Until the caller is done with the
    /// reference, that ULT must not run, nor may others do the same: for example before it is
    /// resumed, or before the caller, which runs on its only stream, leaves.
    ///
    /// Threads: any. What is written is seen by the ULT when it runs next.
    /// Failure: as get(); throws error{invalid} if the ULT runs right now, has ended (its values
    ///          are destroyed then), or if the handle or name is empty.
    /// Cost:    as get(), and a system call.
    T& get_of(const ult_ref& of) {
        if (void* const known = detail::find_local_of(of, key_)) return *static_cast<T*>(known);
        auto made = std::make_unique<T>(first_());
        detail::add_local_of(of, key_, made.get(), &destroy);
        return *made.release();
    }
    T& get_of(const ult& of) { return get_of(detail::ref_of(of)); }
    /// The same, but null if that ULT has no value yet.
    T* find_of(const ult_ref& of) const { return static_cast<T*>(detail::find_local_of(of, key_)); }
    T* find_of(const ult& of) const { return find_of(detail::ref_of(of)); }

    T& operator*() { return get(); }
    T* operator->() { return &get(); }

private:
    static void destroy(void* value) noexcept { delete static_cast<T*>(value); }

    const std::uint64_t key_;
    const std::function<T()> first_;
};

}  // namespace amalgam
