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

/// The call a handler is serving.
///
/// Owner:   the engine; lives until the handler returns.
/// Threads: the handler's.
class call_context {
public:
    /// The call served by the running ULT or inline handler.
    /// Failure: throws error{invalid} outside a handler.
    static call_context& current();
    /// The same, or null outside a handler.
    static call_context* try_current() noexcept;

    call_context(const call_context&) = delete;
    call_context& operator=(const call_context&) = delete;

    /// The caller; can be called back.
    const peer& from() const noexcept { return from_; }
    /// Who the caller is: see peer::who().
    identity who() const;
    /// The serving engine; invalid once the handler has destroyed it.
    engine& where() const noexcept { return *where_; }
    /// Name of the procedure, as defined.
    std::string_view procedure() const noexcept { return procedure_; }
    /// Provider id the caller asked for; see procedure_options::provider.
    std::uint16_t provider() const noexcept { return provider_; }
    /// Index of the engine's port that received the call; peer::self_port if the engine called
    /// itself.
    std::size_t port() const noexcept { return from_.port(); }
    /// The trace the call belongs to, with the call as the current span; null if none.
    const trace_context* trace() const noexcept { return trace_; }
    /// Value attached under this key by the caller's interceptors; see outgoing_call::attach().
    std::optional<std::string_view> metadata(std::string_view key) const noexcept;
    /// True if no reply is expected.
    bool one_way() const noexcept { return one_way_; }
    /// When the caller stops waiting, by this engine's clock. Calls made by the handler inherit it,
    /// unless theirs is earlier.
    std::optional<clock::time_point> deadline() const noexcept {
        if (deadline_ == clock::time_point::max()) return std::nullopt;
        return deadline_;
    }
    /// True if the caller canceled or is gone: the result is discarded.
    bool canceled() const noexcept { return canceled_.load(std::memory_order_relaxed); }

    // Per-call slot for the layer whose handler runs; initially null.
    void*& kept_by_layer() noexcept { return kept_by_layer_; }

protected:
    call_context(const peer& from, engine& where, std::string_view procedure,
                 clock::time_point deadline, bool one_way, std::uint16_t provider) noexcept
        : from_(from),
          where_(&where),
          procedure_(procedure),
          deadline_(deadline),
          one_way_(one_way),
          provider_(provider) {}
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
