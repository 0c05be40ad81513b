#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include <amalgam/core/bytes.hpp>
#include <amalgam/core/clock.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>

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
    /// The engine that serves the call; not once the handler has destroyed it.
    engine& where() const noexcept { return *where_; }
    /// The name the procedure is defined by.
    std::string_view procedure() const noexcept { return procedure_; }
    /// Under which id it was asked for; see procedure_options::provider.
    std::uint16_t provider() const noexcept { return provider_; }
    /// Which of the engine's ports the call came by, in the order they were given;
    /// peer::self_port when the engine called itself.
    std::size_t port() const noexcept { return from_.port(); }
    /// The trace that the call belongs to, the call itself being its span; null: none.
    const trace_context* trace() const noexcept { return trace_; }
    /// What the caller's interceptors attached under this key; see outgoing_call::attach().
    std::optional<std::string_view> metadata(std::string_view key) const noexcept;
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

    // For the layer whose handler runs: what it keeps of the call meanwhile; null at first.
    void*& kept_by_layer() noexcept { return kept_by_layer_; }

protected:
    call_context() = default;
    ~call_context() = default;

    peer from_;
    engine* where_ = nullptr;
    std::string_view procedure_;
    clock::time_point deadline_ = clock::time_point::max();
    bool one_way_ = false;
    std::uint16_t provider_ = 0;
    const trace_context* trace_ = nullptr;
    const_bytes extras_wire_;
    void* kept_by_layer_ = nullptr;
    std::atomic<bool> canceled_{false};
};

}  // namespace amalgam
