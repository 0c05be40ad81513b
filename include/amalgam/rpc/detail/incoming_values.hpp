#pragma once

#include <cstddef>
#include <cstdint>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/detail/call.hpp>

namespace amalgam::detail {

/// How a handler reads the values that its caller sends: the target of a call back to the caller,
/// whose streamed answer they are.
///
/// Owner:   lives no longer than the handler.
/// Threads: one at a time.
class incoming_values {
public:
    /// `id`: of the caller's outgoing_values. Throws error{invalid} outside a handler.
    explicit incoming_values(std::uint64_t id);
    incoming_values(const incoming_values&) = delete;
    incoming_values& operator=(const incoming_values&) = delete;

    std::uint64_t id() const noexcept { return id_; }
    /// Throws error{invalid} after begin().
    void set_window(std::uint32_t values);
    const call_target& begin();
    /// What the largest value in a message takes. After begin().
    std::size_t value_bytes() const noexcept;

private:
    const std::uint64_t id_;
    call_target target_;
    clock::time_point deadline_;
    bool begun_ = false;
};

}  // namespace amalgam::detail
