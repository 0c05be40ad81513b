#pragma once

#include <cstdint>
#include <utility>

#include <amalgam/core/detail/function.hpp>
#include <amalgam/tasks/ult_state.hpp>

namespace amalgam {

class execution_stream;
class pool;
class ult;
class ult_ref;

namespace detail {
class ult_record;
ult_record* record_of(const ult_ref& named) noexcept;
}  // namespace detail

namespace this_task {

/// Names the running ULT, for others to resume, cancel or move it. Throws error{invalid} outside a
/// ULT, std::bad_alloc on the ULT's first use.
ult_ref self();

/// ult::id() of the running ULT; 0 outside a ULT. Throws std::bad_alloc on the ULT's first use.
std::uint64_t id();

/// Parks the running ULT until resume() by ult or ult_ref. Returns at once if it was resumed since
/// its last suspend(). ult::cancel() ends the wait.
/// Throws error{invalid} outside a ULT, error{canceled}, std::bad_alloc on the ULT's first use.
void suspend();

}  // namespace this_task

/// Names a ULT without owning it. Stays valid after the ULT has ended: it is then `ended`, and what
/// is asked of it has no effect. A ULT that is revived is the same one.
///
/// Owner:   the program; refers to a small block on the heap, not to the ULT.
/// Threads: const members may run concurrently, also with the ULT and its handle.
/// Failure: members but id() and state() throw error{invalid} for an empty one.
/// Cost:    copying counts a reference; state(), cancel() and migrate() take a lock of the ULT's.
class ult_ref {
public:
    ult_ref() = default;
    /// Used by ult::ref() and this_task::self().
    explicit ult_ref(detail::ult_record& of) noexcept;
    ult_ref(const ult_ref& other) noexcept;
    ult_ref(ult_ref&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
    ult_ref& operator=(ult_ref other) noexcept {
        std::swap(record_, other.record_);
        return *this;
    }
    ~ult_ref() { release(); }

    /// Whether it names a ULT, running or ended.
    explicit operator bool() const noexcept { return record_ != nullptr; }
    bool operator==(const ult_ref& other) const noexcept { return record_ == other.record_; }

    /// As ult::id(); 0 if empty.
    std::uint64_t id() const noexcept;
    /// As ult::state(); `ended` if empty.
    ult_state state() const noexcept;
    /// As ult::resume().
    bool resume() const;
    /// As ult::cancel().
    void cancel() const;
    /// As ult::migrate().
    void migrate(pool& where) const;
    void migrate(execution_stream& where) const;
    void migrate() const;
    /// As ult::on_migrate().
    void on_migrate(std::function<void()> tell) const;

private:
    friend detail::ult_record* detail::record_of(const ult_ref& named) noexcept;
    void release() noexcept;

    detail::ult_record* record_ = nullptr;
};

inline detail::ult_record* detail::record_of(const ult_ref& named) noexcept {
    return named.record_;
}

}  // namespace amalgam
