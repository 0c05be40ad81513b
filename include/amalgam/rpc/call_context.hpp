#pragma once

#include <atomic>
#include <optional>
#include <string_view>

#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/peer.hpp>

namespace amalgam {

class engine;

/// What a handler can know about the call it serves.
///
/// Owner:   the engine; lives until the handler returned.
/// Threads: the handler's.
class call_context {
public:
    /// The call that the running ULT (or inline handler) serves.
    /// Failure: throws error{invalid} outside of a handler.
    static call_context& current();
    /// The same, or null outside of a handler.
    static call_context* try_current() noexcept;

    call_context(const call_context&) = delete;
    call_context& operator=(const call_context&) = delete;

    /// Who called; can be called back.
    const peer& from() const noexcept { return from_; }
    /// The engine that serves the call.
    engine& where() const noexcept { return *where_; }
    /// The name the procedure is defined by.
    std::string_view procedure() const noexcept { return procedure_; }
    /// Nobody waits for an answer.
    bool one_way() const noexcept { return one_way_; }
    /// When the caller stops waiting, by this engine's clock. Calls that the handler makes
    /// inherit it, unless theirs is earlier.
    std::optional<clock::time_point> deadline() const noexcept {
        if (deadline_ == clock::time_point::max()) return std::nullopt;
        return deadline_;
    }
    /// The caller canceled the call, or is gone: the result goes nowhere.
    bool canceled() const noexcept { return canceled_.load(std::memory_order_relaxed); }

protected:
    call_context() = default;
    ~call_context() = default;

    peer from_;
    engine* where_ = nullptr;
    std::string_view procedure_;
    clock::time_point deadline_ = clock::time_point::max();
    bool one_way_ = false;
    std::atomic<bool> canceled_{false};
};

}  // namespace amalgam
