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

/// A call on its way out, as the caller's interceptors see it.
class outgoing_call {
public:
    std::string_view procedure() const noexcept { return procedure_; }
    const peer& to() const noexcept { return to_; }
    std::uint16_t provider() const noexcept { return provider_; }
    bool one_way() const noexcept { return one_way_; }
    std::optional<clock::time_point> deadline() const noexcept {
        if (deadline_ == clock::time_point::max()) return std::nullopt;
        return deadline_;
    }

    /// Sends `value` along; the other side reads it by call_context::metadata(key). All that is
    /// attached to a call may take 64 KiB.
    void attach(std::string_view key, std::string_view value);
    const std::optional<trace_context>& trace() const noexcept { return trace_; }
    /// The call becomes a span of this trace.
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

/// Looks at every call of an engine, in either direction: for authorization, traces, metrics.
/// Override what is of interest; `engine_options::interceptors` holds them.
///
/// Of several, those before a call run in the order given, those after it in reverse. Whichever saw
/// a call begin is told how it ended, whatever the others threw.
/// The library's own procedures (is_library_procedure(): pings, introductions, the directory's
/// notices, code that travels) pass them by, unless one says that it sees those, too: what it asks
/// of every call it then asks of these.
/// Threads: as each member says; several calls at once.
/// Cost:    an engine without any pays one comparison per call.
class interceptor {
public:
    virtual ~interceptor() = default;

    /// Whether this one looks at calls of the library's own procedures, too. The same while the
    /// engine lives. Any thread.
    virtual bool sees_library_procedures() const noexcept { return false; }

    /// Before a call leaves, where the caller is. May throw amalgam::error to refuse it: that is
    /// how the call ends, and nothing is sent. What else it throws ends the call as `invalid`.
    virtual void calling(outgoing_call&) {}
    /// How it ended, and how long it took; on the engine's stream: do not wait. Not for one-way
    /// calls, and not for what calling() of this interceptor, or of one before it, refused. What it
    /// throws is logged.
    virtual void called(std::string_view /*procedure*/, const peer& /*to*/, status /*how*/,
                        clock::duration /*took*/) {}

    /// Before a handler runs, where it will run; may wait, unless the handler is inline. May
    /// throw amalgam::error to refuse the call: errc::denied reaches the caller as
    /// that, with its sentence. What else it throws reaches the caller as `handler_failed`.
    virtual void serving(call_context&) {}
    /// The handler has returned (`ok`), failed, or did not run; before the answer leaves. What it
    /// throws is logged. Where handlers destroy their own engine, call_context::where() is gone
    /// here.
    virtual void served(call_context&, status /*how*/, clock::duration /*took*/) {}
};

}  // namespace amalgam
