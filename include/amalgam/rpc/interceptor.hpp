#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <amalgam/core/clock.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/detail/procedure_name.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>

namespace amalgam {

/// An outgoing call, as seen by the caller's interceptors.
class outgoing_call {
public:
    /// Which call it is: its procedure, the peer and provider it goes to.
    std::string_view procedure() const noexcept { return procedure_; }
    const peer& to() const noexcept { return to_; }
    std::uint16_t provider() const noexcept { return provider_; }
    bool one_way() const noexcept { return one_way_; }
    std::optional<clock::time_point> deadline() const noexcept {
        if (deadline_ == clock::time_point::max()) return std::nullopt;
        return deadline_;
    }

    /// Attaches metadata to the call; the server reads it with call_context::metadata(key). At most
    /// 64 KiB per call.
    void attach(std::string_view key, std::string_view value);
    const std::optional<trace_context>& trace() const noexcept { return trace_; }
    /// Makes the call a span of this trace.
    void set_trace(const trace_context& span) noexcept { trace_ = span; }

protected:
    outgoing_call() = default;
    ~outgoing_call() = default;

    std::string_view procedure_;
    peer to_;
    std::uint16_t provider_ = 0;
    bool one_way_ = false;
    clock::time_point deadline_ = clock::time_point::max();
    std::optional<trace_context> trace_;
    std::vector<std::byte> extras_;
};

/// Observes every call of an engine, in either direction: for authorization, tracing, metrics.
/// Override what you need and add it to `engine_options::interceptors`.
///
/// Hooks before a call run in list order, hooks after it in reverse. An interceptor that saw a call
/// begin is told how it ended, whatever the others throw. The library's own procedures
/// (is_library_procedure(): pings, introductions, directory notifications, injected code) are
/// skipped, unless sees_library_procedures() returns true: then every hook applies to them, too.
/// Threads: stated per member; several calls at once.
/// Cost:    an engine without interceptors pays one comparison per call.
class interceptor {
public:
    virtual ~interceptor() = default;

    /// Whether to see calls of the library's own procedures. Must not change while the engine
    /// lives. Any thread.
    virtual bool sees_library_procedures() const noexcept { return false; }

    /// Before a call is sent, in the caller's context. May throw amalgam::error to reject it: the
    /// call ends with that error and nothing is sent. Any other exception ends the call as
    /// `invalid`.
    virtual void calling(outgoing_call&) {}
    /// How the call ended, and how long it took. Runs on the engine's stream: do not wait. Not
    /// called for one-way calls, nor for calls rejected by calling() of this or an earlier
    /// interceptor. Exceptions are logged.
    virtual void called(std::string_view /*procedure*/, const peer& /*to*/, status /*how*/,
                        clock::duration /*took*/) {}

    /// Before a handler runs, where it will run; may wait, unless the handler is inline. May throw
    /// amalgam::error to reject the call: errc::denied reaches the caller as such, with its
    /// message. Any other exception reaches the caller as `handler_failed`.
    virtual void serving(call_context&) {}
    /// After the handler returned (`ok`), failed, or was skipped, and before the reply is sent.
    /// Exceptions are logged. If the handler destroyed its own engine, call_context::where() is no
    /// longer valid.
    virtual void served(call_context&, status /*how*/, clock::duration /*took*/) {}
};

}  // namespace amalgam
