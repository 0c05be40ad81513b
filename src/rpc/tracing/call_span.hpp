#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include <amalgam/core/detail/recorder.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/rpc/call_context.hpp>
#include <amalgam/rpc/peer.hpp>
#include <amalgam/rpc/trace_context.hpp>

#include "rpc/tracing/slow_calls.hpp"

namespace amalgam::detail {

/// Starts recording calls and units if the environment says so; see start_recording(). True: calls
/// are recorded, or looked at by the log of slow calls.
bool start_tracing() noexcept;

/// The trace of a call that belongs to none yet: a new one, sampled by the set rate.
trace_context new_trace() noexcept;

/// "port 0, peer 17", as trace_text(): an address would have to be looked up on the engine's
/// stream.
std::uint32_t trace_text_of(const peer& who) noexcept;

/// A call of this engine while it is recorded.
class call_span {
public:
    /// `serving`: the call that is being served where this one is made; may be null.
    call_span(const trace_context& trace, const call_context* serving, std::size_t bytes) noexcept;

    /// It is handed to the port, or queued for it. Again with each retry.
    void leaves() noexcept { left_ = trace_time(); }
    /// `address`: the peer's, where it is at hand.
    /// What the answer tells.
    void heard(const_bytes times) noexcept { there_ = call_times::read(times); }
    void end(std::string_view procedure, const peer& to, status how,
             std::string_view address = {}) noexcept {
        record(span_kind::call, procedure, to, how, address);
    }
    void end_one_way(std::string_view procedure, const peer& to) noexcept {
        record(span_kind::one_way, procedure, to, {}, {});
    }

private:
    void record(span_kind kind, std::string_view procedure, const peer& to, status how,
                std::string_view address) noexcept;

    trace_context trace_;
    std::array<std::byte, 8> parent_{};
    std::uint64_t began_;
    std::uint64_t left_ = 0;
    std::uint64_t bytes_;
    std::optional<call_times> there_;
};

/// Records a handler while it lives. A call that came without a trace begins one, which the
/// handler's calls continue.
class handler_span {
public:
    /// `trace`: the call's own, changed while this lives. `arrived`: 0 if nobody looked.
    handler_span(const call_context& call, const trace_context*& trace, std::uint64_t arrived,
                 std::size_t bytes) noexcept;
    ~handler_span();
    handler_span(const handler_span&) = delete;
    handler_span& operator=(const handler_span&) = delete;

    call_times ends(status how) noexcept;

private:
    const call_context& call_;
    const trace_context*& trace_;
    std::optional<trace_context> own_;
    std::uint64_t arrived_;
    std::uint64_t began_;
    std::uint64_t bytes_;
    status how_{errc::canceled};
};

/// The trace of the call that the caller serves; null: it serves none, or that has none.
const trace_context* trace_of_handler() noexcept;

/// A transfer of this engine while it is recorded.
class transfer_span {
public:
    /// `under`: the trace of the handler that asked for it, or null. Null: that is not recorded, or
    /// there is no memory.
    static std::unique_ptr<transfer_span> begin(const trace_context* under) noexcept;
    void end(bool is_put, std::uint64_t bytes, const peer& with, status how) const noexcept;

private:
    std::uint64_t began_ = 0;
    std::optional<trace_context> trace_;  ///< Its own span.
    std::array<std::byte, 8> parent_{};
};

}  // namespace amalgam::detail
